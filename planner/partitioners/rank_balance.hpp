// Contiguous chunks for an interleaved pipeline: the load of a stage is the sum of its chunks.
#pragma once

#include <vector>

#include "core/plan/plan.hpp"
#include "core/units.hpp"

namespace pipewright::planner {

// Cuts a chain into as many consecutive, non-empty chunks as the seating has; of it only their places matter. Looks
// for a small largest sum per stage, and among those for chunks of even size: from the cut with the least largest chunk
// it moves single layers from a chunk of the fullest stage to any other chunk (all cuts between the two shift by one)
// while that helps. A heuristic. There are at least as many layers as chunks.
//     80 layers of 1000 and a head of 1139 on 8 stages x 5: largest 11000
//                                                  tests/planner/rank_balance_test.cpp "a layout tuned by hand"
//
// `first_round`: load of the first chunk of every stage as a share of the others', at most 1. The first chunks have the
// most micro-batches in flight: smaller ones save memory. Below 1 the search begins with cuts at those shares of the
// whole load.
std::vector<LayerRange> rank_balanced(const std::vector<Time>& load, const Seating& seating, double first_round = 1);

// Largest sum of a stage's chunks.
Time rank_load(const std::vector<Time>& load, const std::vector<LayerRange>& chunks, const Seating& seating);

}  // namespace pipewright::planner
