#include "planner/partitioners/suffix_dp.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <tuple>

#include <doctest/doctest.h>

#include "planner/partitioners/min_max.hpp"
#include "tests/planner/suffix_oracle.hpp"

namespace pipewright::tests {
namespace {

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

TEST_CASE("Where an update waits for its round, what stands apart from the backward adds to the all-reduce") {
  SuffixProblem problem{.compute = list<Time>({60}),
                        .apart = list<Time>({20}),
                        .gradients = list<Bytes>({100}),
                        .bandwidth = kByteANanosecond};
  CHECK(stage_time(problem, {0, 1}, 1) == Time{60});  // nothing to reduce, nobody waits
  CHECK(stage_time(problem, {0, 1}, 2) == Time{60});  // max(60, 20 + 100) / 2
  CHECK(stage_time(problem, {0, 1}, 4) == Time{43});  // (20 + 150) / 4 = 42.5
  problem.compute[0] = Time{140};
  CHECK(stage_time(problem, {0, 1}, 2) == Time{70});  // the backward of 120 hides the all-reduce of 100
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

TEST_CASE("On two levels the places of a stage's replicas decide which links it loads") {
  SuffixProblem problem{.compute = list<Time>({1, 1, 1}), .gradients = list<Bytes>({0, 100, 0})};
  problem.devices = 6, problem.devices_per_node = 2;
  problem.bandwidth = kByteANanosecond, problem.inside = Bandwidth{4e9};
  CHECK(stage_time(problem, {1, 2}, 2, 0) == Time{13});  // in one node: 2 * 1/2 * 100 / 4 = 25, / 2
  CHECK(stage_time(problem, {1, 2}, 2, 1) == Time{50});  // in two: 100 / 1, / 2
  CHECK(stage_time(problem, {1, 2}, 4, 0) == Time{32});  // rings inside, 100 / 4, and between, 100: less than 150; / 4
  problem.gradients = {}, problem.boundary = list<Bytes>({40, 8, 0});
  CHECK(stage_time(problem, {1, 2}, 2, 0) == Time{48});  // (40 + 8) of both replicas over the node's link
  CHECK(stage_time(problem, {1, 2}, 1, 0) ==
        Time{12});  // the stage before it is in the node: 48 / 4 inside; 8 leave it
  CHECK(stage_time(problem, {1, 2}, 1, 1) == Time{40});  // the stage behind it is in the node
}

TEST_CASE("suffix_dp on two levels equals brute force, and no placement is faster than `Anywhere` says") {
  std::mt19937 random(24);
  int fit = 0;
  for (int round = 0; round < 600; ++round) {
    const SuffixProblem problem = random_on_nodes(random, 6, 6);
    CAPTURE(round);
    SuffixProblem bound = problem;
    bound.places = StagePlaces::Anywhere;
    std::optional<std::int64_t> least;
    std::vector<std::pair<LayerRange, int>> stages;
    const auto plans = [&](auto& self, int begin, int devices) -> void {
      if (begin == static_cast<int>(problem.compute.size())) {
        if (problem.stages != 0 && static_cast<int>(stages.size()) != problem.stages) return;
        std::int64_t time = 0;
        int behind = 0;
        for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
          const auto [layers, r] = *stage;
          if (memory_of(problem, layers, r, behind) > problem.capacity.value) return;
          const std::int64_t compute = (sum(problem.compute, layers) + r - 1) / r;
          const double link = link_time_on_nodes(problem, layers, r, behind);
          const std::int64_t mine = std::max(compute, static_cast<std::int64_t>(std::ceil(link - 1e-6)));
          CHECK(stage_time(problem, layers, r, behind).value == mine);
          CHECK(stage_time(bound, layers, r) <= Time{mine});
          time = std::max(time, mine);
          behind += r;
        }
        if (!least || time < *least) least = time;
        return;
      }
      for (int next = begin + 1; next <= static_cast<int>(problem.compute.size()); ++next)
        for (int r = 1; r <= devices; ++r) {
          if (!problem.replicas.empty() && std::count(problem.replicas.begin(), problem.replicas.end(), r) == 0)
            continue;
          stages.emplace_back(LayerRange{begin, next}, r);
          self(self, next, devices - r);
          stages.pop_back();
        }
    };
    plans(plans, 0, problem.devices);
    const SuffixAnswer answer = suffix_dp(problem);
    REQUIRE(!answer.stages.empty() == least.has_value());
    if (!least) continue;
    ++fit;
    CHECK(answer.bottleneck.value == *least);
    CHECK(suffix_dp(bound).bottleneck <= answer.bottleneck);
  }
  CHECK(fit > 300);
}

TEST_CASE("Every number of stages at once gives the bottlenecks of one at a time, also within a limit") {
  std::mt19937 random(25);
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    SuffixProblem problem = round % 2 == 0 ? random_problem(random, 10, 8) : random_on_nodes(random, 10, 8);
    problem.stages = 0;
    const Time unlimited = suffix_dp(problem).bottleneck;
    if (random() % 2 == 0 && unlimited > Time{}) problem.limit = Time{unlimited.value + unlimited.value / 4};
    const int whole = std::max(1, problem.devices / 2);
    std::vector<SuffixAnswer> answers = suffix_dp_by_stages(problem, 4, {whole});
    for (int q = 1; q <= 4; ++q) {
      problem.stages = q;
      const SuffixAnswer one = suffix_dp(problem);
      const auto with_q = [&](const SuffixAnswer& answer) { return static_cast<int>(answer.stages.size()) == q; };
      const auto first = std::find_if(answers.begin(), answers.end(), with_q);
      REQUIRE((first != answers.end()) == !one.stages.empty());
      if (first == answers.end()) continue;
      ++found;
      CHECK(first->bottleneck == one.bottleneck);
      for (auto each = first; each != answers.end() && with_q(*each); ++each) {
        CHECK((each == first || each->devices == whole));
        Time slowest;
        int behind = 0;
        for (auto stage = each->stages.rbegin(); stage != each->stages.rend(); ++stage) {
          CHECK(stage->memory <= problem.capacity);
          slowest = std::max(slowest, stage_time(problem, stage->layers, stage->replicas, behind));
          behind += stage->replicas;
        }
        CHECK(slowest == each->bottleneck);
        CHECK(behind == each->devices);
      }
    }
  }
  CHECK(found > 200);
}

TEST_CASE("A run of few micro-batches has few in flight, and buffers count for memory") {
  SuffixProblem problem{.compute = list<Time>({9, 9}), .stash = list<Bytes>({2, 2}), .boundary = list<Bytes>({3, 0})};
  problem.devices = 4, problem.capacity = {6}, problem.replicas = {1};
  CHECK(SuffixStages(problem).in_flight(1, 3) == 4);
  problem.micro_batches = 2;
  CHECK(SuffixStages(problem).in_flight(1, 3) == 2);
  CHECK(stage_memory(problem, {0, 1}, 2) == Bytes{4});
  problem.buffered = 1;
  CHECK(stage_memory(problem, {0, 1}, 2) == Bytes{7});  // with the message that waits to leave
  CHECK(suffix_dp(problem).stages.size() == 1);         // both in one stage: 4 bytes
}

}  // namespace
}  // namespace pipewright::tests
