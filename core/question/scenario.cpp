#include "core/question/scenario.hpp"

#include <cmath>

namespace pipewright::core {

Scenario::Scenario() = default;
Scenario::Scenario(const Scenario&) = default;
Scenario::Scenario(Scenario&&) noexcept = default;
Scenario& Scenario::operator=(const Scenario&) = default;
Scenario& Scenario::operator=(Scenario&&) noexcept = default;
Scenario::~Scenario() = default;

std::string expert_caution(const Scenario& scenario) {
  const PlanRequest& plan = scenario.plan;
  if (scenario.cost != CostSourceKind::Roofline || !has_experts(scenario.model)) return "";
  if (plan.open.contains("expert_parallel")) return "";  // a plan that is found says its own
  if (!plan.split().sends_tokens())
    return "experts are priced without an exchange of tokens: each device has a part of every expert of its layers; "
           "plan.expert_parallel divides them among devices";
  if (const auto& capacity = plan.expert_capacity) {
    const double all = plan.most_imbalance(plan.split());
    if (all > capacity->value)
      return "plan.expert_capacity drops at least " + std::to_string(std::lround(100 * (1 - capacity->value / all))) +
             " % of the tokens that the fullest device gets by plan.expert_imbalance; its effect on the loss is not "
             "known here";
    if (plan.expert_padding) return "";
  }
  if (plan.expert_imbalance.value > 1) return "";
  return "all experts get as many tokens (plan.expert_imbalance: 1); with an auxiliary loss the fullest device gets "
         "1.1 to 1.3 times the mean, and the layer takes as long as it does";
}

Scenario without_what_is_not_there(Scenario scenario) {
  const auto close = [&](const char* key) {
    const auto open = scenario.plan.open.find(key);
    if (open != scenario.plan.open.end() && open->second.among.empty()) scenario.plan.open.erase(open);
  };
  const bool priced = scenario.cost == CostSourceKind::Roofline || scenario.cost == CostSourceKind::Profile;
  if (!priced || !has_experts(scenario.model)) close("expert_parallel");
  if (!priced || !has_shareable_sequences(scenario.model)) close("context_parallel");
  return scenario;
}

}  // namespace pipewright::core
