// The plan nearest to one that a training framework can run: what the framework has no words for is replaced by what
// comes next, and every replacement is named.
//
// What the frameworks can say is a fact about their versions: docs/reference/launch.md lists both.
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"
#include "planner/launch/frameworks.hpp"

namespace pipewright::planner {

struct NearestPlan {
  Scenario scenario;                     // of the nearest plan, every field settled
  Scenario asked;                        // of the plan itself, settled likewise
  std::vector<std::string> differences;  // "schedule: gpipe is not there; 1f1b"; empty: the plan itself
};

// `plan` is the plan of `scenario`. Throws InputError where the framework cannot train the model at all.
NearestPlan nearest_plan(const Scenario& scenario, const Plan& plan, Framework framework);

// Layers per stage as DeepSpeed's partition_method "uniform" cuts them: the first ones take one more.   [DeepSpeed26]
//     10 layers on 4 stages: 3 3 2 2                            tests/planner/launch_test.cpp "uniform"
std::vector<std::int64_t> uniform_cut(std::int64_t layers, std::int64_t stages);

}  // namespace pipewright::planner
