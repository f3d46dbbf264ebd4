#include "planner/partitioners/suffix_dp.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <tuple>

#include <doctest/doctest.h>

#include "planner/partitioners/min_max.hpp"

namespace pipewright {
namespace {

template <class Unit>
std::vector<Unit> list(const std::vector<std::int64_t>& values) {
  std::vector<Unit> units;
  for (const auto value : values)
    units.push_back({value});
  return units;
}

template <class Unit>
std::int64_t sum(const std::vector<Unit>& values, LayerRange layers) {
  std::int64_t total = 0;
  for (LayerId i = layers.begin; i < layers.end && !values.empty(); ++i)
    total += values[static_cast<std::size_t>(i)].value;
  return total;
}

std::int64_t at_or_zero(const std::vector<Bytes>& values, int i) {
  return values.empty() ? 0 : values[static_cast<std::size_t>(i)].value;
}

// The formulas of the header once more, over 1 GB/s: a byte takes a nanosecond.
constexpr Bandwidth kByteANanosecond{1e9};

std::int64_t time_of(const SuffixProblem& problem, LayerRange layers, std::int64_t r) {
  const auto share = [&](std::int64_t whole) { return (whole + r - 1) / r; };
  std::int64_t time = share(sum(problem.compute, layers));
  if (std::isinf(problem.bandwidth.value)) return time;
  if (layers.begin > 0) time = std::max(time, share(at_or_zero(problem.boundary, layers.begin - 1)));
  if (layers.end < static_cast<int>(problem.compute.size()))
    time = std::max(time, share(at_or_zero(problem.boundary, layers.end - 1)));
  const std::int64_t moved = 2 * (r - 1) * sum(problem.gradients, layers);
  return std::max(time, share((2 * moved + r) / (2 * r)));  // moved / r, halves up
}

std::int64_t memory_of(const SuffixProblem& problem, LayerRange layers, int r, int behind) {
  const std::int64_t in_flight = (r + behind + r - 1) / r;
  return sum(problem.resident, layers) +
         in_flight * (sum(problem.stash, layers) + at_or_zero(problem.entry, layers.begin));
}

// Bottleneck, stages, cuts, devices, replicas: what ties are broken by, in that order.
using Key = std::tuple<std::int64_t, std::size_t, std::vector<int>, int, std::vector<int>>;

struct Brute {
  const SuffixProblem& problem;
  std::vector<LayerRange> layers{};
  std::vector<int> replicas{};
  std::optional<Key> best{};
  std::int64_t least_memory = -1;  // least over all plans of the most on one device

  void plans(int begin, int devices) {
    const int end = static_cast<int>(problem.compute.size());
    if (begin == end && (problem.stages == 0 || static_cast<int>(layers.size()) == problem.stages)) judge();
    for (int next = begin + 1; next <= end; ++next)
      for (int r = 1; r <= devices; ++r) {
        if (!problem.replicas.empty() && std::count(problem.replicas.begin(), problem.replicas.end(), r) == 0) continue;
        layers.push_back({begin, next}), replicas.push_back(r);
        plans(next, devices - r);
        layers.pop_back(), replicas.pop_back();
      }
  }
  void judge() {
    std::int64_t time = 0, memory = 0;
    int behind = 0;
    std::vector<int> cuts;
    for (std::size_t k = layers.size(); k-- > 0; behind += replicas[k]) {
      time = std::max(time, time_of(problem, layers[k], replicas[k]));
      memory = std::max(memory, memory_of(problem, layers[k], replicas[k], behind));
    }
    for (const LayerRange range : layers)
      cuts.push_back(range.end);
    least_memory = least_memory < 0 ? memory : std::min(least_memory, memory);
    if (memory > problem.capacity.value) return;
    const Key key{time, layers.size(), cuts, behind, replicas};
    if (!best || key < *best) best = key;
  }
};

Brute brute_force(const SuffixProblem& problem) {
  Brute brute{problem};
  brute.plans(0, problem.devices);
  return brute;
}

Key key(const SuffixAnswer& answer) {
  Key key{answer.bottleneck.value, answer.stages.size(), {}, answer.devices, {}};
  for (const SuffixStage& stage : answer.stages) {
    std::get<2>(key).push_back(stage.layers.end);
    std::get<4>(key).push_back(stage.replicas);
  }
  return key;
}

SuffixProblem random_problem(std::mt19937& random, int most_layers, int most_devices) {
  const auto layers = 1 + random() % static_cast<unsigned>(most_layers);
  const auto draw = [&](std::uint32_t span) {
    std::vector<std::int64_t> values(layers);
    for (auto& value : values)
      value = static_cast<std::int64_t>(random() % (span + 1));
    return values;
  };
  const std::uint32_t span = std::vector<std::uint32_t>{2, 10, 1000}[random() % 3];
  SuffixProblem problem{.compute = list<Time>(draw(span))};
  problem.devices = 1 + static_cast<int>(random() % static_cast<unsigned>(most_devices));
  if (random() % 2 == 0) {
    problem.bandwidth = kByteANanosecond;
    problem.gradients = list<Bytes>(draw(span / 2));
    problem.boundary = list<Bytes>(draw(2 * span));
  }
  if (random() % 4 != 0) {
    problem.resident = list<Bytes>(draw(20));
    problem.stash = list<Bytes>(draw(10));
    if (random() % 2 == 0) problem.entry = list<Bytes>(draw(6));
    problem.capacity = {static_cast<std::int64_t>(10 + random() % 150)};
  }
  if (random() % 4 == 0) problem.replicas = {1, 2, 4};
  if (random() % 3 == 0) problem.stages = 1 + static_cast<int>(random() % std::min<std::size_t>(layers, 4));
  return problem;
}

TEST_CASE("Micro-batches in flight per replica: all devices from the stage to the end, shared by its replicas") {
  CHECK(replica_in_flight(1, 0) == 1);
  CHECK(replica_in_flight(1, 3) == 4);   // 1F1B: K - k
  CHECK(replica_in_flight(2, 3) == 3);   // ceil(5 / 2)
  CHECK(replica_in_flight(15, 1) == 2);  // PipeDream's 15-1
}

TEST_CASE("A stage's time is the largest of work, all-reduce and messages") {
  SuffixProblem problem{.compute = list<Time>({10, 60, 5}),
                        .gradients = list<Bytes>({0, 100, 0}),
                        .boundary = list<Bytes>({40, 0, 7}),
                        .bandwidth = kByteANanosecond};
  CHECK(stage_time(problem, {1, 2}, 1) == Time{60});
  CHECK(stage_time(problem, {1, 2}, 2) == Time{50});  // max(60 / 2, 100 / 2, 40 / 2)
  CHECK(stage_time(problem, {1, 2}, 4) == Time{38});  // 2 * 3/4 * 100 = 150, / 4 = 37.5
  CHECK(stage_time(problem, {0, 1}, 1) == Time{40});  // its message takes longer than its work
  CHECK(stage_time(problem, {2, 3}, 1) == Time{5});   // behind the last layer there is no message
}

TEST_CASE("Memory decides by how many devices are behind") {
  // 4 equal layers, 2 bytes of stash each, 4 devices. One layer each: 8, 6, 4, 2 bytes.
  SuffixProblem problem{.compute = list<Time>({9, 9, 9, 9}), .stash = list<Bytes>({2, 2, 2, 2}), .devices = 4};
  problem.capacity = {8};
  CHECK(key(suffix_dp(problem)) == Key{9, 1, {4}, 4, {4}});  // one stage of four replicas: 8 bytes each
  problem.replicas = {1};
  CHECK(key(suffix_dp(problem)) == Key{9, 4, {1, 2, 3, 4}, 4, {1, 1, 1, 1}});
  problem.capacity = {7};  // the first of four stages does not fit; three stages need 6, 4, 4 or less
  CHECK(key(suffix_dp(problem)) == Key{18, 3, {1, 2, 4}, 3, {1, 1, 1}});
  problem.capacity = {5};  // nothing: 8 in one stage, 4 and 6 at best in two, 6 4 4 in three
  const SuffixAnswer none = suffix_dp(problem);
  CHECK(none.states == 4);  // layers 3 and 2-3 on one device, 2|3 and 1|2-3 on two
  CHECK(none.stages.empty());
  CHECK(none.missing == Bytes{1});
  REQUIRE(none.hungriest);
  CHECK(*none.hungriest == SuffixStage{{1, 4}, 1, 1, Time{27}, Bytes{6}});  // of the plan on the fewest devices
}

TEST_CASE("suffix_dp equals brute force over stages and replicas, ties included, and says what is missing") {
  std::mt19937 random(21);
  int fit = 0, none = 0, impossible = 0;
  for (int round = 0; round < 1500; ++round) {
    const SuffixProblem problem = random_problem(random, 8, 5);
    CAPTURE(round);
    const SuffixAnswer answer = suffix_dp(problem);
    const Brute brute = brute_force(problem);
    REQUIRE(!answer.stages.empty() == brute.best.has_value());
    if (brute.best) {
      ++fit;
      CHECK(key(answer) == *brute.best);
      CHECK(answer.states > 0);
      int behind = 0;
      for (auto stage = answer.stages.rbegin(); stage != answer.stages.rend(); ++stage) {
        CHECK(stage->memory.value == memory_of(problem, stage->layers, stage->replicas, behind));
        CHECK(stage->memory <= problem.capacity);
        CHECK(stage->time.value == time_of(problem, stage->layers, stage->replicas));
        behind += stage->replicas;
      }
    } else if (answer.hungriest) {
      ++none;
      CHECK(problem.capacity + answer.missing == Bytes{brute.least_memory});
      CHECK(answer.hungriest->memory == Bytes{brute.least_memory});
      SuffixProblem more = problem;
      more.capacity += answer.missing;
      CHECK(!suffix_dp(more).stages.empty());
    } else {
      ++impossible;
      CHECK(brute.least_memory == -1);
    }
  }
  CHECK(fit > 500);
  CHECK(none > 100);
  CHECK(impossible > 10);
}

TEST_CASE("Without replicas, messages and memory the bottleneck is min_max's") {
  std::mt19937 random(22);
  for (int round = 0; round < 500; ++round) {
    const auto layers = 1 + random() % 40;
    const int parts = static_cast<int>(1 + random() % layers);
    std::vector<Time> load;
    for (std::size_t i = 0; i < layers; ++i)
      load.push_back({static_cast<std::int64_t>(random() % 1000)});
    Time largest;
    for (const LayerRange range : min_max(load, parts))
      largest = std::max(largest, Time{sum(load, range)});
    SuffixProblem problem{.compute = load, .devices = parts, .replicas = {1}};
    CHECK(suffix_dp(problem).bottleneck == largest);
    problem.stages = parts;
    CHECK(suffix_dp(problem).bottleneck == largest);
    CHECK(static_cast<int>(suffix_dp(problem).stages.size()) == parts);
  }
}

TEST_CASE("A further device or more memory never worsens the bottleneck") {
  std::mt19937 random(23);
  for (int round = 0; round < 500; ++round) {
    const SuffixProblem problem = random_problem(random, 20, 12);
    const SuffixAnswer answer = suffix_dp(problem);
    if (answer.stages.empty()) continue;
    SuffixProblem wider = problem, roomier = problem;
    ++wider.devices;
    if (roomier.capacity.value < kLargest) roomier.capacity += Bytes{5};
    for (const SuffixAnswer& better : {suffix_dp(wider), suffix_dp(roomier)}) {
      REQUIRE(!better.stages.empty());
      CHECK(better.bottleneck <= answer.bottleneck);
    }
  }
}

}  // namespace
}  // namespace pipewright
