// What is left of a tensor-parallel group's exchanges where each runs beside the product next to it (plan.tensor_overlap).
//
// With sequence parallelism a product whose columns are divided reads what its group gathers, and one whose depth is
// divided makes what its group scatters. Both run in t parts, so that the group sends one part while it computes another:
//     g' and x: the t parts of the product, one after the other; the exchange alone
//     together = max(g', x) + min(g', x) / t              the first part has nothing to run beside          [Wang23]
//     left = together - g                                 beyond the product in one piece, g
// t = 4, g = 100 us, g' = 112 us, x = 60 us: 112 + 15 - 100 = 27 us in place of 60. x = 200 us: 200 + 28 - 100 = 128.
// Where that would take longer than to wait, nothing runs in parts: x. An exchange that has no such product next to it in
// its layer (an embedding's, experts', the next layer's) is left whole.
//
// Backwards a product whose depth is divided reads what is gathered, in parts. Of one whose columns are divided the
// gradient of the input is scattered: by `ring` in parts, too. `true` is Transformer Engine's userbuffers, which run that beside the
// gradient of the weights, and the second gathering of the product's input, which this one reads, beside the gradient of the
// input. Neither needs the other, so both are kernels in one piece:                                [TransformerEngine26]
//     together = max(g', x')      g': with the multiprocessors taken that the collective holds, x' beside computing
//                                                                                  (Device::contention)
// g = 8 ms, t = 4: x = 4 ms takes 9 ms in parts, 8 in one piece; x = 12: 14 and 12.
// Waiting counts one exchange x of the two, since the second gathering is hidden there; so no more is left of both than x. Where the
// gradients of the weights come later, or are none, nothing runs beside the scattering: in parts, or waited for.
//
// `backward` is Megatron-LM's own layers, and Transformer Engine's without userbuffers: the same two exchanges beside the same
// two gradients, and everything else is waited for. Without sequence parallelism the all-reduce of the input's gradient runs
// beside the gradient of the weights.                                          [Megatron26] [TransformerEngine26]
//     left = max(0, x - g)                                g = 2 ms: x = 3 ms leaves 1 ms, x = 1 ms none
//                                                    tests/core/tensor_overlap_test.cpp
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/rooms.hpp"

namespace pipewright::core {

// A product of one pass in one piece and in t, one part after the other; in any unit of time.
struct DividedProduct {
  double whole = 0, parts = 0;
};

// Of an exchange beside one, `sent` as long beside computing.
inline double left_in_parts(const DividedProduct& product, double exchange, double sent, int t) {
  const auto& [whole, parts] = product;
  return std::clamp(std::max(parts, sent) + std::min(parts, sent) / t - whole, 0.0, exchange);
}

// Of as many exchanges; those without a product are left whole.
inline double left_of_exchanges(const std::vector<DividedProduct>& products, int times, double exchange, double sent,
                                int t) {
  double left = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(times); ++i)
    left += i < products.size() ? left_in_parts(products[i], exchange, sent, t) : exchange;
  return left;
}

// Gradients of a product whose columns are divided: of its input also in parts, and of both beside a collective.
struct ColumnGradients {
  DividedProduct input;
  double weight = 0;  // 0: none
  double input_beside = 0, weight_beside = 0;
};

// Of its exchanges: in the pass over the input and in that over the weights; `apart`: what the first has more where the
// second does not follow at once.
struct LeftOfBackward {
  double input = 0, weight = 0, apart = 0;

  LeftOfBackward& operator+=(const LeftOfBackward& other) {
    input += other.input, weight += other.weight, apart += other.apart;
    return *this;
  }
};
// Of the exchange of an input's gradient and, where halves of it are exchanged, of the second gathering. Apart: it is waited for.
inline LeftOfBackward left_of_gradients(const ColumnGradients& of, double exchange, double sent, bool halves) {
  if (of.weight <= 0) return {exchange, 0, 0};
  const double gather = halves ? std::clamp(std::max(of.input_beside, sent) - of.input.whole, 0.0, exchange) : 0;
  const double scatter = std::clamp(std::max(of.weight_beside, sent) - of.weight, 0.0, exchange - gather);
  return {gather, scatter, exchange - gather - scatter};
}
inline LeftOfBackward left_in_bulk(const ColumnGradients& of, double exchange, double sent, int t) {
  LeftOfBackward left = left_of_gradients(of, exchange, sent, true);
  if (of.weight <= 0) return left;
  const double in_parts = left_in_parts(of.input, exchange, exchange, t);
  left.apart = std::clamp(in_parts - left.weight, 0.0, left.apart);
  return left;
}

// Of as many exchanges there and back: those before gradients of inputs that read them, and those above.
inline LeftOfBackward left_of_backward(const std::vector<DividedProduct>& gathers,
                                       const std::vector<ColumnGradients>& columns, int times, double exchange,
                                       double sent, int t) {
  LeftOfBackward left{left_of_exchanges(gathers, times, exchange, exchange, t), 0, 0};
  for (std::size_t i = 0; i < static_cast<std::size_t>(times); ++i)
    left += i < columns.size() ? left_in_bulk(columns[i], exchange, sent, t) : LeftOfBackward{exchange, 0, 0};
  return left;
}

// Of as many all-reduces, or pairs of halves of which the first is waited for; an exchange each.
inline LeftOfBackward left_without_parts(const std::vector<ColumnGradients>& columns, int times, double exchange,
                                         double sent, bool halves) {
  LeftOfBackward left{halves ? times * exchange : 0, 0, 0};
  for (std::size_t i = 0; i < static_cast<std::size_t>(times); ++i)
    left += i < columns.size() ? left_of_gradients(columns[i], exchange, sent, halves) : LeftOfBackward{exchange, 0, 0};
  return left;
}

}  // namespace pipewright::core
