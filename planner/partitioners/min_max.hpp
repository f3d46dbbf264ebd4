// Contiguous partition with the smallest largest part, exactly.
#pragma once

#include <vector>

#include "core/plan/plan.hpp"
#include "core/units.hpp"

namespace pipewright {

// Cuts a chain of loads into `parts` consecutive, non-empty ranges so that the largest sum is minimal; ties go to the
// earliest cuts (the lexicographically smallest list of cut positions among the optima). 1 <= parts <= loads.size().
// Binary search on the bound with a greedy probe over prefix sums: O(parts log L log sum), then the earliest cuts
// greedily.  Equal to brute force: tests/planner/min_max_test.cpp
std::vector<LayerRange> min_max(const std::vector<Time>& load, int parts);

}  // namespace pipewright
