// Block partition of a chain, as a baseline: what torchgpipe's `balance` uses.
//
// Of numbers between 0 and 1 any sequence can be cut into blocks whose sums differ by 1 at most. [BaranyGrinberg15]
// The rule that finds such a cut moves one element at a time: p is a block of the largest sum M, q the nearest to it of
// those of the least sum m; while M > m + 1, q takes the element next to it from its neighbour on p's side. What q
// takes never makes it a new largest block, and once the taking has reached p itself, p has lost an element: so it
// ends.
//
// Differences of 1 (the largest element) are all that is promised: the largest sum can be far above the least possible
// one, which `min_max` finds. And torchgpipe first maps every cost x to (x - min) / (max - min), which is harmless
// within blocks of equal length only: it takes `min` away once per layer, so that a block of many cheap layers counts
// as nothing.                                                                                [torchgpipe20] balance
//     costs 99 99 99 99 99 99 100 100, two blocks: 99 x 6 + 100 = 694 beside 100, where 396 beside 398 would do
//
// Everything is in whole numbers: instead of dividing by (max - min), blocks of costs less the least one may differ by
// max - min.
#pragma once

#include <vector>

#include "core/plan/plan.hpp"
#include "core/units.hpp"

namespace pipewright::planner {

// 1 <= parts <= load.size(). Starts, as torchgpipe does, with load.size() / parts layers each and the rest in the last
// block. Ties: the last of the largest blocks; of two blocks equally near the earlier one. torchgpipe takes the first
// of the least blocks, not the nearest: it cuts 0 0 5 10 into blocks of 3, 0 and 1 layers; here a block never ends
// empty, as one that gave its only layer is the nearest of the least and the next to take.
//                                                  tests/planner/block_partition_test.cpp
std::vector<LayerRange> block_partition(const std::vector<Time>& load, int parts);

// `layers` layers in `parts` consecutive ranges whose sizes differ by one at most; the first ranges take the rest, the
// last of which runs beside the loss. 1 <= parts <= layers.
//     10 layers in 4 parts: 3 3 2 2.                                   tests/planner/block_partition_test.cpp
std::vector<LayerRange> equal_layers(int layers, int parts);

// As many blocks each, by the same rule; what stands before the first block goes with it, what follows a block with
// that one. `blocks`: their layer numbers, growing, at least `parts`.                    [Megatron21] section 2.2
//     embedding, 4 blocks, head in 2 parts: 3 3.                       tests/planner/block_partition_test.cpp
std::vector<LayerRange> equal_blocks(const std::vector<LayerId>& blocks, int layers, int parts);

}  // namespace pipewright::planner
