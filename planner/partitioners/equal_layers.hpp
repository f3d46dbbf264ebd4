// Contiguous partition into stages of as many layers each, whatever they cost.
#pragma once

#include <vector>

#include "core/plan/plan.hpp"

namespace pipewright {

// `layers` layers in `parts` consecutive ranges whose sizes differ by one at most; the first ranges take the rest, the
// last of which runs beside the loss. 1 <= parts <= layers.
//     10 layers in 4 parts: 3 3 2 2.                                   tests/planner/block_partition_test.cpp
std::vector<LayerRange> equal_layers(int layers, int parts);

}  // namespace pipewright
