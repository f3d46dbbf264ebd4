// Block partition of a chain, as a baseline: what torchgpipe's `balance` uses.
//
// Of numbers between 0 and 1 any sequence can be cut into blocks whose sums differ by 1 at most. [BaranyGrinberg15]
// The rule that finds such a cut moves one element at a time: p is a block of the largest sum M, q one of the least
// sum m; while M > m + 1, q takes the element next to it from its neighbour on p's side. What q takes never makes it a
// new largest block, and once the taking has reached p itself, p has lost an element: so it ends.
//
// Differences of 1 (the largest element) are all that is promised: the largest sum can be far above the least possible
// one, which `min_max` finds. And torchgpipe first maps every cost x to (x - min) / (max - min), which is harmless
// within blocks of equal length only: it takes `min` away once per layer, so that a block of many cheap layers counts
// as nothing.                                                                                [torchgpipe20] balance
//     costs 99 99 99 99 99 99 100 100, two blocks: 99 x 6 + 100 = 694 beside 100; as they are: 396 beside 398
//
// Everything is in whole numbers: instead of dividing by (max - min), blocks may differ by max - min.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/units.hpp"

namespace pipewright {

enum class BlockCosts : std::uint8_t {
  AsTheyAre,   // blocks differ by the largest cost at most
  LessTheMin,  // torchgpipe's: each cost less the least one; blocks of those differ by (max - min) at most
};

// 1 <= parts <= load.size(). Starts, as torchgpipe does, with load.size() / parts layers each and the rest in the last
// block. Ties: the last of the largest blocks; of the least ones the one next to it, the earlier one of two. No block
// is ever emptied, as torchgpipe's can be: a neighbour of one layer gives it away and takes one from its own neighbour
// on p's side.                                     tests/planner/block_partition_test.cpp
std::vector<LayerRange> block_partition(const std::vector<Time>& load, int parts,
                                        BlockCosts costs = BlockCosts::LessTheMin);

}  // namespace pipewright
