// Operators for which Megatron-LM runs more kernels than one, and what those read and write, over what one kernel would.
//
// Softmax over scores. Megatron's kernel that scales, masks and normalises at once runs where a device has a multiple of four
// matrices of scores, each with a multiple of four queries and of keys, more than 16 and at most 4096 keys
// (FusedScaleMaskSoftmax.is_kernel_available of github.com/NVIDIA/Megatron-LM).
// Elsewhere five kernels do: to fp32, scale, mask in place, softmax, back. In reads and writes of an fp16 matrix:
//     forward  3 + 4 + 4.5 + 4 + 3 = 18.5 in place of 2;   backward  3 + 6 + 4.5 + 4 + 3 = 20.5 in place of 3
//
// GELU as the gate of experts, whose halves are clamped first (weighted_bias_quick_geglu_impl): two clamps, their halves put
// together, the fused kernel; backwards that kernel, the router's weights, two clamps, the halves put together. In 16-bit values
// per value between an expert's products:
//     forward  2 + 2 + 4 + 3 = 11 in place of 3;           backward  5 + 3 + 6 + 4 = 18 in place of 5
// A gate that is not clamped is not fused there, and moves as much: GELU, product, times the router's fp32 weight, to 16 bits.
//
// Biases of the experts' second product (TEGroupedMLP._apply_bias), expert by expert: bias times fp32 weight of the router, plus
// the product in fp32; then all put together, and to 16 bits. In bytes per value:
//     forward  4 + 10 + 8 + 6 = 28 in place of 4;          backward  6 + 6 + 12 + 12 + 4 = 40 in place of 4
// Its loop is counted as one kernel per expert.
//
// The scan of a Mamba-2 mixer (mamba_ssm's mamba_split_conv1d_scan_combined). Backward, the forward's kernel of each part runs
// again before that of its gradient; the scores have a gradient each for B and C, and the scan itself does not run again, but
// has six: gate, states, X, C, scores, decays.                                                          [MambaSSM26]
// Its kernels take kScanSlowdown times as long as others that move as many bytes. On an H100 the five of a forward without
// gate (128 heads of 64, one group, N = 128, chunks of 256) do 12.6, 12.9, 11.8, 11.1, 10.7 and 10.8 million tokens/s at 8192,
// 16384, ... 262144 tokens, where their bytes at 0.89 of the bandwidth would allow 28: 2.2 to 2.6, 2.4 in the mean. Backward and
// on other devices the same is assumed.                                                                   [VllmSSD25]
//                            tests/core/operator_costs_test.cpp, tests/core/state_space_test.cpp "as fast as measured"
//
// The rule of a gated delta net (flash-linear-attention's chunk_gated_delta_rule). Forward one kernel for T and one for W and U,
// one for the states, one for the output. Backward W, U and the states again; the gradients of W, U and A; of the states; of
// v' within a chunk, of q, k, W and g; and sums, of what heads share and of parts.                    [FlashLinear26]
// Its kernels take 1.84 and, backward, 2.0 times as long as others that move as many bytes. The states of a sample's chunks are
// computed one after the other, 1.24 and 3.4 us each, however many heads and samples there are: with few of them that is longer. On
// an H200 56 forwards (8 to 64 heads of 128, 2048 to 32768 tokens in samples of 2048 up) are within 13 % of that, 5.0 % in the
// mean, 8 backwards (4 to 32 heads) within 2 %. On other devices the same is assumed.                     [FlashQLA26]
//                                                             tests/core/delta_net_test.cpp "as fast as measured"
#pragma once

#include <algorithm>
#include <cmath>

#include "core/model/work.hpp"

namespace pipewright::core {

struct KernelsOfOperator {
  int kernels = 1, kernels_back = 1;
  double forward = 1, backward = 1;        // bytes, over those of one kernel
  double forward_ns = 0, backward_ns = 0;  // at least: what waits for what is before it
};

inline constexpr double kScanSlowdown = 2.4;
inline constexpr double kDeltaSlowdown = 1.84, kDeltaSlowdownBack = 2.0;
inline constexpr double kChunkNs = 1240, kChunkNsBack = 3400;

// Whatever the framework: none has others.
inline KernelsOfOperator scan_kernels(const Operator& op) {
  if (op.name == "conv1d") return {1, 2, 1, 1};
  if (op.name == "rms_norm" || op.name == "gated_norm" || op.name == "causal_conv1d") return {};
  if (op.name == "l2_norm") return {2, 2, 1, 1};
  if (op.name == "chunk_gates") return {3, 3, 1, 1};
  if (op.name == "chunk_wy") return {2, 5, kDeltaSlowdown, kDeltaSlowdownBack};
  if (op.name == "chunk_output") return {1, 5, kDeltaSlowdown, kDeltaSlowdownBack};
  if (op.name == "chunk_states")
    return {1, 2, kDeltaSlowdown, kDeltaSlowdownBack, op.in_turn * kChunkNs, op.in_turn * kChunkNsBack};
  const int back = op.name == "chunk_scan" ? 6 : op.name == "chunk_scores" ? 3 : 2;
  return {1, back, kScanSlowdown, kScanSlowdown};
}

// Whether an operator behind `scores` takes the five kernels, of so many samples on a device.
inline bool softmax_apart(const Operator& op, const ProductOfLayer& scores, double samples,
                          const TensorParallel& split) {
  if (op.name != "softmax" || op.module != Module::AttentionCore) return false;
  const double matrices = samples * scores.groups / (op.divided ? split.degree : 1);
  const auto by_four = [](double count) { return std::fmod(count, 4) == 0; };
  return !(scores.columns > 16 && scores.columns <= 4096 && by_four(scores.columns) && by_four(scores.rows) &&
           by_four(matrices));
}

// `experts`: that a device holds.
inline KernelsOfOperator megatron_kernels(const Operator& op, const ProductOfLayer& scores, double samples,
                                          const TensorParallel& split, double experts) {
  if (softmax_apart(op, scores, samples, split)) return {5, 5, 18.5 / 2, 20.5 / 3};
  if (op.name == "gelu_gate") return {4, 5, 11.0 / 3, 18.0 / 5};
  const int loop = static_cast<int>(std::max(1.0, experts)) + 1;
  if (op.name == "expert_bias") return {loop, loop, 28.0 / 4, 40.0 / 4};
  return {};
}

}  // namespace pipewright::core
