// Delayed scaling (training.low_precision: fp8_delayed) takes its scales from the largest values, amax, of earlier passes,
// which the devices that share a tensor must agree on: behind every forward and every backward of a chunk with linear layers
// Transformer Engine all-reduces them, and computes nothing meanwhile. The group is that of the framework:
//     all               every device that holds the chunk: tensor parallelism x its copies      Megatron-LM's default
//     tensor_parallel   those of tensor parallelism, and that share its sequences               --tp-only-amax-red
//     none              nobody (DelayedScaling(reduce_amax=False))                              [TransformerEngine26]
// Of a linear layer there are three values in a forward and two in a backward, 4 bytes each: what counts is the latency.
// 256 H100 on 32 nodes, NICs of 0 us, NCCL's tree: 6.8 + 2 (7 * 0.6 + 5 * 5) = 65.2 us per pass.
//                                                                        tests/planner/amax_reductions_test.cpp
#pragma once

#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"

namespace pipewright::core {

// By stage, of one pass of a chunk; empty: nothing is exchanged.
std::vector<Time> amax_reductions(const Plan& plan, const CostModel& cost);

}  // namespace pipewright::core
