#include "planner/partitioners/block_partition.hpp"

#include <algorithm>
#include <random>

#include <doctest/doctest.h>

#include "tests/support/microseconds.hpp"

namespace pipewright::tests {
namespace {

std::vector<std::int64_t> sums(const std::vector<Time>& load, const std::vector<LayerRange>& ranges,
                               std::int64_t less = 0) {
  std::vector<std::int64_t> list;
  for (const LayerRange range : ranges) {
    list.push_back(0);
    for (LayerId i = range.begin; i < range.end; ++i)
      list.back() += load[static_cast<std::size_t>(i)].value - less;
  }
  return list;
}

std::int64_t spread(const std::vector<std::int64_t>& values) {
  return *std::max_element(values.begin(), values.end()) - *std::min_element(values.begin(), values.end());
}

bool covers(const std::vector<LayerRange>& ranges, int layers) {
  LayerId at = 0;
  for (const LayerRange range : ranges) {
    if (range.begin != at || range.end <= range.begin) return false;
    at = range.end;
  }
  return at == layers;
}

TEST_CASE("Equal numbers of layers: the first stages take the rest") {
  CHECK(equal_layers(10, 4) == std::vector<LayerRange>{{0, 3}, {3, 6}, {6, 8}, {8, 10}});
  CHECK(equal_layers(3, 3) == std::vector<LayerRange>{{0, 1}, {1, 2}, {2, 3}});
  CHECK(equal_layers(5, 1) == std::vector<LayerRange>{{0, 5}});
}

TEST_CASE("One to six in two blocks: torchgpipe's own example") {  // its test of `balance`: 1 2 3 4 | 5 6
  CHECK(block_partition(times({1, 2, 3, 4, 5, 6}), 2) == std::vector<LayerRange>{{0, 4}, {4, 6}});
  CHECK(block_partition(times({0, 0}), 2) == std::vector<LayerRange>{{0, 1}, {1, 2}});
}

TEST_CASE("Taking the least cost away from every layer unbalances blocks of different lengths") {
  const auto load = times({99, 99, 99, 99, 99, 99, 100, 100});
  CHECK(sums(load, block_partition(load, 2)) == std::vector<std::int64_t>{694, 100});
}

TEST_CASE("A block of one layer passes layers on and is never emptied") {
  // 0 | 1 | 5 10: the first block takes the 1 of the middle one, which takes the 5 of the last.
  CHECK(block_partition(times({0, 1, 5, 10}), 3) == std::vector<LayerRange>{{0, 2}, {2, 3}, {3, 4}});
  // 0 | 0 | 5 10: the middle block is the nearer of the two with nothing.
  CHECK(block_partition(times({0, 0, 5, 10}), 3) == std::vector<LayerRange>{{0, 1}, {1, 3}, {3, 4}});
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    const int layers = 1 + static_cast<int>(random() % 12);
    const int parts = 1 + static_cast<int>(random() % static_cast<unsigned>(layers));
    std::vector<std::int64_t> load(static_cast<std::size_t>(layers));
    for (auto& value : load)
      value = random() % 3 == 0 ? static_cast<std::int64_t>(random() % 5) : 0;
    CAPTURE(load);
    CHECK(covers(block_partition(times(load), parts), layers));
  }
}

TEST_CASE("Blocks differ by the largest cost at most, as the theorem says, in costs less the least one") {
  std::mt19937 random(4);
  for (int round = 0; round < 2000; ++round) {
    const auto layers = 1 + random() % 40;
    const auto parts = static_cast<int>(1 + random() % layers);
    std::vector<std::int64_t> load(layers);
    const std::uint32_t span = round % 2 == 0 ? 5 : 1000;
    for (auto& value : load)
      value = random() % span;
    CAPTURE(load);
    CAPTURE(parts);
    const auto list = times(load);
    const auto [least, largest] = std::minmax_element(load.begin(), load.end());
    const auto blocks = block_partition(list, parts);
    CHECK(covers(blocks, static_cast<int>(layers)));
    CHECK(spread(sums(list, blocks, *least)) <= *largest - *least);
  }
}

}  // namespace

TEST_CASE("equal_blocks deals out blocks; embedding and head go with the first and the last") {
  CHECK(equal_blocks({1, 2, 3, 4}, 6, 2) == std::vector<LayerRange>{{0, 3}, {3, 6}});
  CHECK(equal_blocks({1, 2, 3, 4, 5}, 7, 3) == std::vector<LayerRange>{{0, 3}, {3, 5}, {5, 7}});
  CHECK(equal_blocks({1, 2}, 4, 1) == std::vector<LayerRange>{{0, 4}});
  CHECK(equal_blocks({0, 3}, 5, 2) == std::vector<LayerRange>{{0, 3}, {3, 5}});  // what follows a block goes with it
}

}  // namespace pipewright::tests
