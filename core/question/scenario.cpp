#include "core/question/scenario.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace pipewright::core {

Scenario::Scenario() = default;
Scenario::Scenario(const Scenario&) = default;
Scenario::Scenario(Scenario&&) noexcept = default;
Scenario& Scenario::operator=(const Scenario&) = default;
Scenario& Scenario::operator=(Scenario&&) noexcept = default;
Scenario::~Scenario() = default;

std::string expert_caution(const Scenario& scenario) {
  const auto has_experts = [](const Work& work) {
    return std::any_of(work.operators.begin(), work.operators.end(),
                       [](const Operator& op) { return op.name == "experts"; });
  };
  const std::vector<Work>& works = scenario.model.works;
  if (scenario.cost != CostSourceKind::Roofline || std::none_of(works.begin(), works.end(), has_experts)) return "";
  if (scenario.plan.open.contains("expert_parallel")) return "";  // a plan that is found says its own
  if (!scenario.plan.split().sends_tokens())
    return "experts are priced without an exchange of tokens: each device has a part of every expert of its layers; "
           "plan.expert_parallel divides them among devices";
  if (const auto& capacity = scenario.plan.expert_capacity) {
    const PlanRequest& plan = scenario.plan;
    const double all =
        plan.split().experts > 1
            ? std::max(plan.expert_imbalance.value, plan.expert_imbalance_memory.value_or(plan.expert_imbalance).value)
            : 1;
    if (all > capacity->value)
      return "plan.expert_capacity drops at least " + std::to_string(std::lround(100 * (1 - capacity->value / all))) +
             " % of the tokens that the fullest device gets by plan.expert_imbalance; its effect on the loss is not "
             "known "
             "here";
    if (scenario.plan.expert_padding) return "";
  }
  if (scenario.plan.expert_imbalance.value > 1) return "";
  return "all experts get as many tokens (plan.expert_imbalance: 1); with an auxiliary loss the fullest device gets "
         "1.1 to "
         "1.3 times the mean, and the layer takes as long as it does";
}

}  // namespace pipewright::core
