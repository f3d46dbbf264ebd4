// The knapsack of one stage, against brute force over all subsets of its layers.
#include "planner/partitioners/recompute_knapsack.hpp"

#include <optional>
#include <random>

#include <doctest/doctest.h>

using namespace pipewright::tests;

namespace {

constexpr Bytes bytes(std::int64_t value) {
  return {value};
}

struct Freed {
  Time extra;
  std::int64_t net = 0;  // q * freed - largest transient
};
Freed freed_by(const std::vector<RebuildItem>& items, std::uint32_t subset, std::int64_t in_flight) {
  Freed sum;
  std::int64_t transient = 0;
  for (std::size_t i = 0; i < items.size(); ++i)
    if ((subset >> i & 1) != 0) {
      sum.extra += items[i].extra, sum.net += in_flight * items[i].freed.value;
      transient = std::max(transient, items[i].transient.value);
    }
  sum.net -= transient;
  return sum;
}
Freed freed_by(const std::vector<RebuildItem>& items, const std::vector<int>& chosen, std::int64_t in_flight) {
  std::uint32_t subset = 0;
  for (const int item : chosen)
    subset |= std::uint32_t{1} << item;
  return freed_by(items, subset, in_flight);
}

std::optional<Time> brute_force(const std::vector<RebuildItem>& items, std::int64_t in_flight, Bytes over) {
  std::optional<Time> best;
  for (std::uint32_t subset = 0; subset < std::uint32_t{1} << items.size(); ++subset) {
    const Freed here = freed_by(items, subset, in_flight);
    if (here.net >= over.value && (!best || here.extra < *best)) best = here.extra;
  }
  return best;
}

std::vector<RebuildItem> random_items(std::mt19937& random, std::size_t count, int kind) {
  std::vector<RebuildItem> items(count);
  for (RebuildItem& item : items) {
    item.extra = Time{static_cast<std::int64_t>(random() % 40)};
    item.freed = Bytes{static_cast<std::int64_t>(random() % 60) - 5};  // some free nothing
    item.transient = Bytes{static_cast<std::int64_t>(random() % 150)};
    if (kind == 1) item = {Time{7}, bytes(20), bytes(9)};                           // equal blocks
    if (kind == 2) item.extra = Time{std::max<std::int64_t>(0, item.freed.value)};  // no item is better than another
    if (kind == 3) item.transient = item.freed;                                     // what is freed is rebuilt
  }
  return items;
}

}  // namespace

// (extra, freed, transient), q = 2, 20 B too much: the first two free 2 * 16 >= 20 + 1 and add 7, the first and the
// third 2 * 15 >= 20 + 9 and add 6, the last two only 22.
TEST_CASE("the knapsack of three layers by hand: the largest rebuilt layer counts once") {
  const std::vector<RebuildItem> items = {
      {Time{4}, bytes(10), bytes(1)}, {Time{3}, bytes(6), bytes(1)}, {Time{2}, bytes(5), bytes(9)}};
  const auto set = least_rebuild(items, 2, bytes(20));
  REQUIRE(set.has_value());
  CHECK(set->items == std::vector<int>{0, 2});
  CHECK(set->extra == Time{6});
  CHECK(set->slack == bytes(0));
  CHECK(least_rebuild(items, 2, bytes(23))->items == std::vector<int>{0, 1});
  CHECK(least_rebuild(items, 2, bytes(33))->items == std::vector<int>{0, 1, 2});  // 42 >= 33 + 9
  CHECK_FALSE(least_rebuild(items, 2, bytes(34)).has_value());
  CHECK(least_rebuild(items, 2, bytes(0))->items.empty());
}

TEST_CASE("the knapsack adds as little as the best of all subsets, whatever is in flight and missing") {
  std::mt19937 random(5);
  int found = 0, none = 0;
  for (int round = 0; round < 400; ++round) {
    const std::vector<RebuildItem> items = random_items(random, 1 + random() % 12, round % 5);
    for (const std::int64_t in_flight : {1, 2, 5, 16}) {
      const Bytes over{static_cast<std::int64_t>(1 + random() % static_cast<unsigned>(400 * in_flight))};
      const auto best = brute_force(items, in_flight, over);
      const auto set = least_rebuild(items, in_flight, over);
      REQUIRE(set.has_value() == best.has_value());
      ++(best ? found : none);
      if (!best) continue;
      const Freed freed = freed_by(items, set->items, in_flight);
      CHECK(set->extra == *best);
      CHECK(freed.extra == *best);
      CHECK(freed.net >= over.value);
    }
  }
  CHECK(found > 300);
  CHECK(none > 100);
}

TEST_CASE("a list of sets that is thinned gives a set that frees enough, and is off by no more than it says") {
  std::mt19937 random(6);
  int thinned = 0;
  for (int round = 0; round < 200; ++round) {
    const std::vector<RebuildItem> items = random_items(random, 12, 0);
    const std::int64_t in_flight = 1 + random() % 4;
    const Bytes over{static_cast<std::int64_t>(40 + random() % 300)};
    const auto set = least_rebuild(items, in_flight, over, 8);
    if (!set) continue;
    CHECK(freed_by(items, set->items, in_flight).net >= over.value);
    if (set->slack > bytes(0)) ++thinned;
    const auto tighter = brute_force(items, in_flight, over + set->slack);
    CHECK((!tighter || set->extra <= *tighter));
  }
  CHECK(thinned > 30);
}

TEST_CASE("fifty layers of all sizes take no thinning") {
  std::mt19937 random(8);
  std::vector<RebuildItem> items;
  std::int64_t all = 0;
  for (int i = 0; i < 50; ++i) {
    items.push_back({Time{static_cast<std::int64_t>(1000 + random() % 100'000)},
                     Bytes{static_cast<std::int64_t>(1000 + random() % 1'000'000)},
                     Bytes{static_cast<std::int64_t>(random() % 1'000'000)}});
    all += items.back().freed.value;
  }
  for (const int share : {1, 3, 5, 8}) {
    const auto set = least_rebuild(items, 1, Bytes{all / 10 * share});
    REQUIRE(set.has_value());
    CHECK(set->slack == bytes(0));
  }
}

TEST_CASE("the set that needs least memory: not always all layers, for the largest is rebuilt, too") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const std::vector<RebuildItem> items = random_items(random, 1 + random() % 10, round % 5);
    const std::int64_t in_flight = 1 + random() % 4;
    std::int64_t most = 0;
    for (std::uint32_t subset = 0; subset < std::uint32_t{1} << items.size(); ++subset)
      most = std::max(most, freed_by(items, subset, in_flight).net);
    CHECK(freed_by(items, most_freeing(items, in_flight).items, in_flight).net == most);
  }
}
