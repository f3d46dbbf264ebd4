// Models with experts are priced as if a layer's experts were one dense product: tests/planner/answer_test.cpp
// "experts".
#pragma once

#include <algorithm>
#include <string>

#include "core/question/scenario.hpp"

namespace pipewright {

// A layer whose time follows from its operators, experts among them.
inline bool prices_experts(const Scenario& scenario) {
  if (scenario.cost != CostSourceKind::Roofline) return false;
  return std::any_of(scenario.model.works.begin(), scenario.model.works.end(), [](const Work& work) {
    return std::any_of(work.operators.begin(), work.operators.end(),
                       [](const Operator& op) { return op.name == "experts"; });
  });
}

// What that leaves out, ready for a report's warnings; "": the model has no experts, or its layers' times are stated.
inline std::string expert_caution(const Scenario& scenario) {
  return prices_experts(scenario)
             ? "experts are priced as one dense product: all experts of a layer are on the devices of its stage, "
               "tokens "
               "divide evenly among them, and no exchange of tokens between devices takes time; expert parallelism is "
               "not modelled yet: docs/guide/scope.md"
             : "";
}

}  // namespace pipewright
