#include "planner/partitioners/min_max.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/folds.hpp"

namespace pipewright::planner {
namespace {

constexpr std::size_t kMostCells = std::size_t{1} << 24;  // layers x parts of the weighted search: about a second

using Sums = std::vector<std::int64_t>;  // sums[i]: load of layers 0 .. i-1

// First layer of the longest range that ends before `end` and whose load is at most `bound`.
std::size_t range_begin(const Sums& sums, std::size_t end, std::int64_t bound) {
  const auto first = sums.begin(), last = first + static_cast<std::ptrdiff_t>(end);
  return at(std::lower_bound(first, last, sums[end] - bound) - first);
}

// starts[q]: the smallest layer from which `q` ranges of at most `bound` reach the end of the chain. Taking as much as
// fits from the back is optimal for a load that only grows.
std::vector<std::size_t> earliest_starts(const Sums& sums, int parts, std::int64_t bound) {
  std::vector<std::size_t> starts{sums.size() - 1};
  for (int q = 0; q < parts; ++q)
    starts.push_back(range_begin(sums, starts.back(), bound));
  return starts;
}

Sums sums_of(const std::vector<Time>& load) {
  Sums sums{0};
  for (const Time time : load) {
    PP_CHECK(time.value >= 0);
    sums.push_back(checked_sum(sums.back(), time.value, "the sum of the layer times"));
  }
  return sums;
}

// reaches[q][i]: the last q parts can hold the layers from i to the end, none of them empty, within bound * replicas.
using Reaches = std::vector<std::vector<char>>;

Reaches reaches(const Sums& sums, const std::vector<int>& replicas, std::int64_t bound) {
  const std::size_t layers = sums.size() - 1, parts = replicas.size();
  Reaches from(parts + 1, std::vector<char>(layers + 1, 0));
  from[0][layers] = 1;
  std::vector<int> change(layers + 2);
  for (std::size_t q = 1; q <= parts; ++q) {
    const std::int64_t r = replicas[parts - q], room = bound > kLargest / r ? kLargest : bound * r;
    std::ranges::fill(change, 0);
    for (std::size_t end = 1; end <= layers; ++end) {
      if (from[q - 1][end] == 0) continue;
      const std::size_t begin = range_begin(sums, end, room);  // every start in [begin, end) will do
      if (begin >= end) continue;
      ++change[begin];
      --change[end];
    }
    int open = 0;
    for (std::size_t i = 0; i < layers; ++i) {
      open += change[i];
      from[q][i] = open > 0 ? 1 : 0;
    }
  }
  return from;
}

}  // namespace

std::vector<LayerRange> min_max(const std::vector<Time>& load, const std::vector<int>& replicas) {
  const std::size_t parts = replicas.size();
  PP_CHECK(parts >= 1 && parts <= load.size());
  if (parts > kMostCells / load.size())
    throw InputError(
        "partition: balanced over replicated stages takes at most 2^24 layers times stages; state the cuts");
  const Sums sums = sums_of(load);
  std::int64_t low = 0, high = sums.back();
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (reaches(sums, replicas, middle)[parts][0] != 0)
      high = middle;
    else
      low = middle + 1;
  }
  const Reaches from = reaches(sums, replicas, low);
  std::vector<LayerRange> ranges;
  std::size_t begin = 0;
  for (std::size_t behind = parts; behind-- > 0;) {  // earliest cuts
    std::size_t end = begin + 1;
    while (from[behind][end] == 0)
      ++end;
    ranges.push_back({static_cast<LayerId>(begin), static_cast<LayerId>(end)});
    begin = end;
  }
  return ranges;
}

std::vector<LayerRange> min_max(const std::vector<Time>& load, int parts) {
  PP_CHECK(parts >= 1 && at(parts) <= load.size());
  const Sums sums = sums_of(load);
  auto largest = most_over<std::int64_t>(load, &Time::value);
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
    const LayerId end =
        behind == 0 ? static_cast<int>(load.size()) : std::max(begin + 1, static_cast<int>(starts[at(behind)]));
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

}  // namespace pipewright::planner
