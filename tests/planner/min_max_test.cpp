#include "planner/partitioners/min_max.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include <doctest/doctest.h>

#include "tests/support/microseconds.hpp"

namespace pipewright::tests {
namespace {

std::vector<int> cuts(const std::vector<LayerRange>& ranges) {
  std::vector<int> list;
  for (std::size_t i = 1; i < ranges.size(); ++i)
    list.push_back(ranges[i].begin);
  return list;
}

// Largest part per replica, rounded up; without replicas the largest part.
std::int64_t largest_part(const std::vector<std::int64_t>& load, const std::vector<int>& cut,
                          const std::vector<int>& replicas = {}) {
  std::int64_t largest = 0;
  for (std::size_t i = 0; i <= cut.size(); ++i) {
    const auto begin = load.begin() + (i == 0 ? 0 : cut[i - 1]);
    const auto end = i == cut.size() ? load.end() : load.begin() + cut[i];
    const std::int64_t r = replicas.empty() ? 1 : replicas[i];
    largest = std::max(largest, (std::accumulate(begin, end, std::int64_t{0}) + r - 1) / r);
  }
  return largest;
}

// Every list of cuts in lexicographic order; the first of the best ones.
std::vector<int> brute_force(const std::vector<std::int64_t>& load, int parts, const std::vector<int>& replicas = {}) {
  std::vector<int> cut(static_cast<std::size_t>(parts - 1)), best;
  std::iota(cut.begin(), cut.end(), 1);
  const int layers = static_cast<int>(load.size());
  std::int64_t best_load = -1;
  while (true) {
    if (const auto now = largest_part(load, cut, replicas); best_load < 0 || now < best_load)
      best = cut, best_load = now;
    int i = parts - 2;
    while (i >= 0 && cut[static_cast<std::size_t>(i)] == layers - (parts - 1 - i))
      --i;
    if (i < 0) return best;
    ++cut[static_cast<std::size_t>(i)];
    std::iota(cut.begin() + i + 1, cut.end(), cut[static_cast<std::size_t>(i)] + 1);
  }
}

TEST_CASE("min_max equals brute force, earliest cuts included, on random chains with zeros and ties") {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    const auto layers = 1 + random() % 10;
    const auto parts = static_cast<int>(1 + random() % layers);
    const auto span = std::vector<std::uint32_t>{1, 2, 3, 10, 1000}[random() % 5];
    std::vector<std::int64_t> load(layers);
    for (auto& value : load)
      value = random() % (span + 1);
    CAPTURE(load);
    CAPTURE(parts);
    CHECK(cuts(min_max(times(load), parts)) == brute_force(load, parts));
  }
}

TEST_CASE("With replicas min_max equals brute force on the time per micro-batch of a stage") {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    const auto layers = 1 + random() % 9;
    const auto parts = static_cast<int>(1 + random() % layers);
    const auto span = std::vector<std::uint32_t>{1, 3, 10, 1000}[random() % 4];
    std::vector<std::int64_t> load(layers);
    for (auto& value : load)
      value = random() % (span + 1);
    std::vector<int> replicas(static_cast<std::size_t>(parts));
    for (int& r : replicas)
      r = static_cast<int>(1 + random() % 5);
    CAPTURE(load);
    CAPTURE(replicas);
    CHECK(cuts(min_max(times(load), replicas)) == brute_force(load, parts, replicas));
  }
}

TEST_CASE("A stage on two workers holds twice as much") {
  CHECK(min_max(times({1, 1, 1, 1}), std::vector<int>{2, 1, 1}) == std::vector<LayerRange>{{0, 2}, {2, 3}, {3, 4}});
  CHECK_THROWS_AS(min_max(std::vector<Time>(1 << 20, Time{1}), std::vector<int>(32, 2)), InputError);
}

TEST_CASE("Six equal layers on three stages lie two by two") {
  CHECK(min_max(times({5, 5, 5, 5, 5, 5}), 3) == std::vector<LayerRange>{{0, 2}, {2, 4}, {4, 6}});
}

TEST_CASE("Layers that take no time still give every stage one, with the earliest cuts") {
  CHECK(min_max(times({0, 0, 0, 0}), 3) == std::vector<LayerRange>{{0, 1}, {1, 2}, {2, 4}});
}

TEST_CASE("As many stages as layers: one each") {
  CHECK(min_max(times({9, 1, 4}), 3) == std::vector<LayerRange>{{0, 1}, {1, 2}, {2, 3}});
}

TEST_CASE("Loads whose sum does not fit are an error, not a wrapped number") {
  CHECK_THROWS_AS(min_max(times({kLargest, kLargest}), 2), InputError);
}

}  // namespace
}  // namespace pipewright::tests
