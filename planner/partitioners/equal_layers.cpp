#include "planner/partitioners/equal_layers.hpp"

#include "core/check.hpp"

namespace pipewright {

std::vector<LayerRange> equal_layers(int layers, int parts) {
  PP_CHECK(parts >= 1 && parts <= layers);
  std::vector<LayerRange> ranges;
  LayerId begin = 0;
  for (int k = 0; k < parts; ++k) {
    const LayerId end = begin + layers / parts + (k < layers % parts ? 1 : 0);
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

}  // namespace pipewright
