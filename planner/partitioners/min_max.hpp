// Contiguous partition with the smallest largest part, exactly.
#pragma once

#include <vector>

#include "core/plan/plan.hpp"
#include "core/units.hpp"

namespace pipewright::planner {

// Cuts a chain of loads into `parts` consecutive, non-empty ranges so that the largest sum is minimal; ties go to the
// earliest cuts (the lexicographically smallest list of cut positions among the optima). 1 <= parts <= loads.size().
// Binary search on the bound with a greedy probe over prefix sums: O(parts log L log sum), then the earliest cuts
// greedily.  Equal to brute force: tests/planner/min_max_test.cpp
std::vector<LayerRange> min_max(const std::vector<Time>& load, int parts);

// The same where part k is shared by replicas[k] workers: minimises the largest ceil(sum_k / replicas[k]), the time per
// micro-batch of a replicated stage. Every feasible cut is kept per bound (taking the most that fits is not exact once
// a part can be forced to hold a layer that only a wider one bears): O(parts * layers * log sum).
//     loads 1 1 1 1, replicas 2 1 1: 2 1 1, largest 1;  unweighted: 1 1 2 with largest 2.
std::vector<LayerRange> min_max(const std::vector<Time>& load, const std::vector<int>& replicas);

}  // namespace pipewright::planner
