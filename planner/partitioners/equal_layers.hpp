// Contiguous partition into stages of as many layers each, whatever they cost.
#pragma once

#include <vector>

#include "core/plan/plan.hpp"

namespace pipewright {

// `layers` layers in `parts` consecutive ranges whose sizes differ by one at most; the first ranges take the rest, the
// last of which runs beside the loss. 1 <= parts <= layers.
//     10 layers in 4 parts: 3 3 2 2.                                   tests/planner/block_partition_test.cpp
std::vector<LayerRange> equal_layers(int layers, int parts);

// As many blocks each, by the same rule; what stands before the first block goes with it, what follows a block with
// that one. `blocks`: their layer numbers, growing, at least `parts`.                    [Megatron21] section 2.2
//     embedding, 4 blocks, head in 2 parts: 3 3.                       tests/planner/block_partition_test.cpp
std::vector<LayerRange> equal_blocks(const std::vector<LayerId>& blocks, int layers, int parts);

}  // namespace pipewright
