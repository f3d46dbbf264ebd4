#include "planner/partitioners/block_partition.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "core/check.hpp"
#include "core/folds.hpp"

namespace pipewright::planner {
namespace {

// Blocks as cut positions: block k is [cuts[k], cuts[k + 1]).
class Blocks {
 public:
  Blocks(std::vector<std::int64_t> costs, int parts) : sums_{0} {
    for (const std::int64_t cost : costs)
      sums_.push_back(checked_sum(sums_.back(), cost, "the sum of the layer times"));
    const int each = static_cast<int>(costs.size()) / parts;
    for (int k = 0; k < parts; ++k)
      cuts_.push_back(k * each);
    cuts_.push_back(static_cast<int>(costs.size()));
  }

  int count() const { return static_cast<int>(cuts_.size()) - 1; }
  int size(int k) const { return cut(k + 1) - cut(k); }
  std::int64_t sum(int k) const { return sums_[at(cut(k + 1))] - sums_[at(cut(k))]; }
  LayerRange range(int k) const { return {cut(k), cut(k + 1)}; }

  int largest() const {
    int p = 0;
    for (int k = 1; k < count(); ++k)
      if (sum(k) >= sum(p)) p = k;
    return p;
  }
  // The nearest to p of the blocks with the least sum.
  int least(int p) const {
    int q = p;
    for (int k = 0; k < count(); ++k)
      if (sum(k) < sum(q) || (sum(k) == sum(q) && (q == p || std::abs(k - p) < std::abs(q - p)) && k != p)) q = k;
    return q;
  }
  // q takes a layer from its neighbour on p's side. True when that is p.
  bool pull(int q, int p) {
    if (p > q) return ++cuts_[at(q + 1)], q + 1 == p;
    return --cuts_[at(q)], q - 1 == p;
  }

 private:
  int cut(int k) const { return cuts_[at(k)]; }

  std::vector<std::int64_t> sums_;
  std::vector<int> cuts_;
};

}  // namespace

std::vector<LayerRange> block_partition(const std::vector<Time>& load, int parts) {
  PP_CHECK(parts >= 1 && at(parts) <= load.size());
  const auto [least, largest] = std::ranges::minmax_element(load);
  PP_CHECK(least->value >= 0);
  const std::int64_t less = least->value;
  const std::int64_t apart = largest->value - less;  // what blocks may differ by
  auto counted = mapped<std::int64_t>(load, [&](const Time time) { return time.value - less; });
  Blocks blocks(std::move(counted), parts);
  while (true) {
    const int p = blocks.largest();
    while (true) {
      const int q = blocks.least(p);
      if (blocks.sum(p) - blocks.sum(q) <= apart) {
        return mapped<LayerRange>(counted_to(parts), [&](int k) { return blocks.range(k); });
      }
      if (blocks.pull(q, p)) break;
    }
  }
}

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
    if (!ranges.empty()) ranges.back().end = blocks[at(share.begin)];
    ranges.push_back({ranges.empty() ? LayerId{0} : ranges.back().end, layers});
  }
  return ranges;
}

}  // namespace pipewright::planner
