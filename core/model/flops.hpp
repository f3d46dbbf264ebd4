// How many FLOPs a model takes per sample, and how publishers count them.
//
// The model's own count is complete: every matrix product and convolution, as computed. Published TFLOP/s per GPU rest
// on other counts, which leave something out or put something in. To compare with them, count as they do:
//     complete     every product as computed: masked pairs of attention where the kernel computes them, routers, gates
//     megatron     causal attention as half of all pairs, sliding windows or not; no routers; of gates only SwiGLU's;
//                  three forward passes for forward and backward      Megatron-LM, num_floating_point_operations (2025)
//                  Of a Mamba-2 mixer its two products and 7 FLOPs per token, inner feature and state, no convolution.
//                  (Megatron-LM itself takes 2 hidden for the inner features, whatever the mixer's heads are.)
//                  Of a gated delta net its two products, its convolution, and 8 FLOPs per token, head and value feature squared.
//     megatron21   all pairs of attention, and four forward passes: the forward runs twice (full recomputation); three
//                  of the logits, which are not recomputed                                      [Megatron21] equation 3
// 1.7 B model (24 layers, hidden 2304, 2048 tokens): 30.21 TFLOP per sample by `megatron21`.
// Llama 3 70B at 8192 tokens: 449.2 GFLOP per token by `megatron`; 719 TFLOP/s and 1602 tokens/s per GPU were published
// for it: 448.8.                                          tests/core/flops_test.cpp "Published FLOPs per token"
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "core/model/graph.hpp"

namespace pipewright::core {

struct FlopConvention {
  enum class Pairs : std::uint8_t { AsComputed, All, HalfIfCausal };  // of queries and keys
  std::string_view name, summary;
  Pairs pairs = Pairs::AsComputed;
  bool routers = true;
  bool other_gates = true;  // gates of other activations than SiLU
  int passes = 0;           // forward and backward are that many forward passes; 0: the gradients as computed
  int logit_passes = 0;     // of the product with the vocabulary; 0: as many as of all
};

std::span<const FlopConvention> flop_conventions();  // the first is the complete count

struct FlopCount {
  double forward = 0;                            // matrix products and convolutions, of one sample
  double backward = 0;                           // their gradients (and, where the convention counts it, recomputation)
  std::array<double, kOperatorKinds> by_kind{};  // `forward` by kind; at Memory what is no product, beyond `forward`
  double training() const { return forward + backward; }
};
// Layers with stated FLOPs count with those, and twice that backward.
FlopCount flop_count(const Model& model, const FlopConvention& convention = flop_conventions().front());

// How many forward passes forward and backward take together, in FLOPs: 3, and of frozen weights as computed.
double forward_passes(const Model& model);

// Parameters that one token uses: all but those of the experts that it is not sent to.
//     Mixtral 8x7B, 2 of 8 experts: 46,702,792,704 in all, 12,879,925,248 active
std::int64_t active_parameters(const Model& model);

}  // namespace pipewright::core
