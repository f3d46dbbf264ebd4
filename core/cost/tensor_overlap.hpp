// What is left of a tensor-parallel group's exchanges where each runs beside the product next to it (plan.tensor_overlap).
//
// With sequence parallelism a product whose columns are divided reads what its group gathers, and one whose depth is
// divided makes what its group scatters. Both run in t parts, so that the group sends one part while it computes another:
//     g' and x: the t parts of the product, one after the other; the exchange alone
//     together = max(g', x) + min(g', x) / t              the first part has nothing to run beside          [Wang23]
//     left = together - g                                 beyond the product in one piece, g
// t = 4, g = 100 us, g' = 112 us, x = 60 us: 112 + 15 - 100 = 27 us in place of 60. x = 200 us: 200 + 28 - 100 = 128.
// Where that would take longer than to wait, nothing runs in parts: x. An exchange that has no such product next to it in
// its layer (an embedding's, experts', the next layer's) is left whole. Gradients of inputs go the other way: the same
// products, the same exchanges.
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

// Of one pass over a layer whose group exchanges `times` times, each time a gathering and a scattering of `half` each.
// `gathers`: products that read what was gathered; `scatters`: those that make what is scattered.
inline double left_of_exchanges(const std::vector<DividedProduct>& gathers, const std::vector<DividedProduct>& scatters,
                                int times, double half, int t) {
  double left = 0;
  for (const std::vector<DividedProduct>* products : {&gathers, &scatters})
    for (std::size_t i = 0; i < static_cast<std::size_t>(times); ++i) {
      if (i >= products->size()) {
        left += half;
        continue;
      }
      const auto& [whole, parts] = (*products)[i];
      left += std::clamp(std::max(parts, half) + std::min(parts, half) / t - whole, 0.0, half);
    }
  return left;
}

}  // namespace pipewright::core
