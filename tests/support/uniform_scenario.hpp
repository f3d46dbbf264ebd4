// A scenario in which nothing gets in the way: equal layers, ideal links, room for everything. Tests change one thing.
#pragma once

#include "core/question/scenario.hpp"

namespace pipewright::tests {

struct UniformScenario {
  int layers = 8;
  int devices = 8;
  std::int64_t stages = 4;
  std::int64_t micro_batches = 8;
  Time forward{1'000'000}, backward{2'000'000};  // per layer and sample
};

// A chain; micro-batches of one sample; places name lines of "s.yaml": plan.stages 1, plan.schedule 2,
// training.micro_batches 3, plan.replicas 4, plan.partition 5, plan.placement 6, plan.recompute 7, data_parallel 8.
Scenario uniform_scenario(const UniformScenario& shape = {});

}  // namespace pipewright::tests
