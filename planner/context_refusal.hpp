// What plan.context_* cannot ask of a model.      tests/planner/context_parallel_test.cpp "what cannot share sequences"
#pragma once

#include <optional>
#include <string>

#include "core/question/scenario.hpp"

namespace pipewright {

struct ContextRefusal {
  std::string key, why;  // of the plan: "context_inner"; with a way out
};
// Nothing: the sequences of all layers can be divided as the plan asks.
std::optional<ContextRefusal> context_refusal(const Scenario& scenario);

}  // namespace pipewright
