// A pipeline over devices of two classes, for tests of planners.
#pragma once

#include <random>

#include "core/question/scenario.hpp"

namespace pipewright::tests {

// Layers of random times on two nodes of two devices "new" and one node of two "old" ones of half the speed and memory;
// PipeDream's schedule, 16 micro-batches. Places: cluster s.yaml:3:1, plan s.yaml:9:1.
Scenario on_two_classes(std::mt19937& random, int layers);

// With the partition that makes whole plans, and the fields open that it chooses.
Scenario by_suffix_dp(Scenario scenario);

}  // namespace pipewright::tests
