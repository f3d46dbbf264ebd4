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

std::vector<LayerRange> equal_blocks(const std::vector<LayerId>& blocks, int layers, int parts) {
  std::vector<LayerRange> ranges;
  for (const LayerRange& share : equal_layers(static_cast<int>(blocks.size()), parts)) {
    if (!ranges.empty()) ranges.back().end = blocks[static_cast<std::size_t>(share.begin)];
    ranges.push_back({ranges.empty() ? 0 : ranges.back().end, layers});
  }
  return ranges;
}

}  // namespace pipewright
