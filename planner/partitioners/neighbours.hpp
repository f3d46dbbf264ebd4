// Cuts next to a cut, for searches that go from one to the next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/plan/plan.hpp"

namespace pipewright {

// One layer less in chunk `from`, one more in chunk `to`: the cuts between the two shift by a layer. `from` holds two
// layers or more.
//     2 3 3 layers, from 2 to 0: 3 3 2                               tests/planner/balanced_test.cpp "one layer moves"
inline std::vector<LayerRange> moved(std::vector<LayerRange> cut, int from, int to) {
  const int shift = from < to ? -1 : 1;
  for (int c = std::min(from, to); c < std::max(from, to); ++c) {
    cut[static_cast<std::size_t>(c)].end += shift;
    cut[static_cast<std::size_t>(c) + 1].begin += shift;
  }
  return cut;
}

}  // namespace pipewright
