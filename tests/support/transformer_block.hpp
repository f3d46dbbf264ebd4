// The transformer block that papers count: layer norm, attention, layer norm, feed-forward, dropout and a skip behind
// each half; with its split over a tensor-parallel group.                              [Korthikanti22] figures 2 and 5
#pragma once

#include "core/question/scenario.hpp"

namespace pipewright::tests {

struct BlockShape {
  std::int64_t sequence = 2048, hidden = 6144, heads = 64, inner = 4 * 6144;
  bool affine = false;  // biases and the norms' parameters: papers leave them out of 12 h^2
  bool flash = false;   // fused causal attention, without dropout, in place of stored scores
};
Work transformer_block(const BlockShape& shape);

// `layers` such blocks in a chain on `devices` devices of one node, for bf16 training, priced from their operators; the
// model's own input is the first block's. Settled for the split.
Scenario block_scenario(const BlockShape& shape, int layers, int devices, TensorParallel split);

}  // namespace pipewright::tests
