// Megatron's kernel that scales, masks and normalises at once runs where a device has a multiple of four matrices of
// scores, each with a multiple of four queries and of keys, more than 16 and at most 4096 keys
// (FusedScaleMaskSoftmax.is_kernel_available of github.com/NVIDIA/Megatron-LM).
// Elsewhere five kernels do: to fp32, scale, mask in place, softmax, back. In reads and writes of an fp16 matrix:
//     forward  3 + 4 + 4.5 + 4 + 3 = 18.5 in place of 2;   backward  3 + 6 + 4.5 + 4 + 3 = 20.5 in place of 3
//                                                                          tests/core/operator_costs_test.cpp
#pragma once

#include <cmath>

#include "core/model/work.hpp"

namespace pipewright::core {

constexpr int kSoftmaxKernels = 5;
constexpr double kSoftmaxForward = 18.5 / 2, kSoftmaxBackward = 20.5 / 3;

// Whether an operator behind `scores` takes the five kernels, of so many samples on a device.
inline bool softmax_apart(const Operator& op, const ProductOfLayer& scores, double samples,
                          const TensorParallel& split) {
  if (op.name != "softmax" || op.module != Module::AttentionCore) return false;
  const double matrices = samples * scores.groups / (op.divided ? split.degree : 1);
  const auto by_four = [](double count) { return std::fmod(count, 4) == 0; };
  return !(scores.columns > 16 && scores.columns <= 4096 && by_four(scores.columns) && by_four(scores.rows) &&
           by_four(matrices));
}

}  // namespace pipewright::core
