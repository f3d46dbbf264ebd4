#include "core/question/scenario.hpp"

#include <algorithm>

namespace pipewright {

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
  return "experts are priced as one dense product: all experts of a layer are on the devices of its stage, tokens "
         "divide evenly among them, and no exchange of tokens between devices takes time; expert parallelism is not "
         "modelled yet: docs/guide/scope.md";
}

}  // namespace pipewright
