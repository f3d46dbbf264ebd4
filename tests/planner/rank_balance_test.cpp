#include "planner/partitioners/rank_balance.hpp"

#include <algorithm>
#include <random>

#include <doctest/doctest.h>

using namespace pipewright::tests;

namespace {

const Seating kEight{.stages = 8, .virtual_stages = 5}, kTwo{.stages = 2, .virtual_stages = 2};

// No cut has a smaller one: the mean over the stages, and the largest layer.
Time least_rank_load(const std::vector<Time>& load, int stages) {
  Time sum, largest;
  for (const Time time : load)
    sum += time, largest = std::max(largest, time);
  return std::max(largest, Time{(sum.value + stages - 1) / stages});
}

// The least of all cuts, by trying them.
Time brute_force(const std::vector<Time>& load, int stages, int chunks) {
  Time best = kNever;
  std::vector<LayerRange> cut;
  const auto place = [&](auto&& self, LayerId begin, int left) -> void {
    const auto layers = static_cast<LayerId>(load.size());
    if (left == 1) {
      cut.push_back({begin, layers});
      best = std::min(best, rank_load(load, cut, Seating{.stages = stages}));
      cut.pop_back();
      return;
    }
    for (LayerId end = begin + 1; end <= layers - left + 1; ++end) {
      cut.push_back({begin, end});
      self(self, end, left - 1);
      cut.pop_back();
    }
  };
  place(place, 0, stages * chunks);
  return best;
}

void check_covers(const std::vector<LayerRange>& cut, LayerId layers) {
  LayerId begin = 0;
  for (const LayerRange& range : cut) {
    CHECK(range.begin == begin);
    CHECK(range.size() >= 1);
    begin = range.end;
  }
  CHECK(begin == layers);
}

}  // namespace

TEST_CASE("a layout tuned by hand: Llama-3 70B on 8 stages of 5 chunks") {
  // Embedding without cost, 80 layers, the head 1.139 layers' worth: the hand layout's fullest stage holds 11 layers.
  std::vector<Time> load(82, Time{1000});
  load.front() = Time{0}, load.back() = Time{1139};
  const auto cut = rank_balanced(load, kEight);
  check_covers(cut, 82);
  CHECK(rank_load(load, cut, kEight) == Time{11'000});
  // Embedding and loss counted as layers: 82 layers on 8 stages, one of them must hold 11.
  const std::vector<Time> counted(82, Time{1000});
  CHECK(rank_load(counted, rank_balanced(counted, kEight), kEight) == Time{11'000});
  CHECK(least_rank_load(counted, 8) == Time{10'250});
}

TEST_CASE("stages are balanced nearly as well as by trying every cut, and never better than the bound") {
  std::mt19937 random(7);
  int best = 0;
  for (int i = 0; i < 60; ++i) {
    std::vector<Time> load;
    for (int layer = 0; layer < 9; ++layer)
      load.push_back(Time{1 + static_cast<std::int64_t>(random() % 20)});
    const Time least = brute_force(load, 2, 2);
    for (const double first_round : {1.0, 0.5, 0.25}) {
      const auto cut = rank_balanced(load, kTwo, first_round);
      check_covers(cut, 9);
      CHECK(rank_load(load, cut, kTwo) >= least);
      if (first_round == 1) best += rank_load(load, cut, kTwo) == least ? 1 : 0;
      CHECK(rank_load(load, cut, kTwo).value <= least.value + 20);
    }
    CHECK(least >= least_rank_load(load, 2));
  }
  CHECK(best >= 35);  // of 60
}

TEST_CASE("as many chunks as layers leave nothing to choose") {
  const std::vector<Time> load = {Time{5}, Time{1}, Time{1}, Time{9}};
  check_covers(rank_balanced(load, kTwo), 4);
  check_covers(rank_balanced(load, kTwo, 0.25), 4);
}
