// Which tensors cross a cut, by looking at every layer behind it.
#pragma once

#include <algorithm>
#include <vector>

#include "core/model/graph.hpp"

namespace pipewright::tests {

// Tensors that cross the cut before layer `cut` (0 < cut < layers): produced before it, used at or after it. The
// producers in order.
inline std::vector<LayerId> tensors_over_cut(const Model& model, LayerId cut) {
  std::vector<LayerId> tensors;
  for (LayerId layer = cut; layer < std::ssize(model.layers); ++layer)
    for (const LayerId input : model.layers[layer].inputs)
      if (input < cut) tensors.push_back(input);
  std::sort(tensors.begin(), tensors.end());
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  return tensors;
}

}  // namespace pipewright::tests
