#include "planner/partitioners/min_max.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pipewright {
namespace {

using Sums = std::vector<std::int64_t>;  // sums[i]: load of layers 0 .. i-1

// First layer of the longest range that ends before `end` and whose load is at most `bound`.
std::size_t range_begin(const Sums& sums, std::size_t end, std::int64_t bound) {
  const auto first = sums.begin(), last = first + static_cast<std::ptrdiff_t>(end);
  return static_cast<std::size_t>(std::lower_bound(first, last, sums[end] - bound) - first);
}

// starts[q]: the smallest layer from which `q` ranges of at most `bound` reach the end of the chain. Taking as much as
// fits from the back is optimal for a load that only grows.
std::vector<std::size_t> earliest_starts(const Sums& sums, int parts, std::int64_t bound) {
  std::vector<std::size_t> starts{sums.size() - 1};
  for (int q = 0; q < parts; ++q)
    starts.push_back(range_begin(sums, starts.back(), bound));
  return starts;
}

}  // namespace

std::vector<LayerRange> min_max(const std::vector<Time>& load, int parts) {
  PP_CHECK(parts >= 1 && static_cast<std::size_t>(parts) <= load.size());
  Sums sums{0};
  std::int64_t largest = 0;
  for (const Time time : load) {
    PP_CHECK(time.value >= 0);
    sums.push_back(checked_sum(sums.back(), time.value, "the sum of the layer times"));
    largest = std::max(largest, time.value);
  }
  // The bound lies between the largest layer and everything in one range.
  std::int64_t low = largest, high = sums.back();
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (earliest_starts(sums, parts, middle).back() == 0)
      high = middle;
    else
      low = middle + 1;
  }
  // Earliest cuts: each cut as far left as the ranges behind it can bear, at least one layer per range.
  const auto starts = earliest_starts(sums, parts, low);
  std::vector<LayerRange> ranges;
  LayerId begin = 0;
  for (int behind = parts - 1; behind >= 0; --behind) {
    const LayerId end = behind == 0
                            ? static_cast<LayerId>(load.size())
                            : std::max(begin + 1, static_cast<LayerId>(starts[static_cast<std::size_t>(behind)]));
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

}  // namespace pipewright
