#include "planner/partitioners/suffix_classes.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <tuple>

#include <doctest/doctest.h>

#include "tests/planner/suffix_oracle.hpp"

namespace pipewright::tests {
namespace {

// One or two classes beside the first, slower or faster layer by layer, with memory of their own.
SuffixProblem random_classes(std::mt19937& random, bool on_nodes) {
  SuffixProblem problem = on_nodes ? random_on_nodes(random, 7, 3) : random_problem(random, 7, 3);
  const int more = 1 + static_cast<int>(random() % 2);
  if (more == 2) problem.devices = 1 + static_cast<int>(random() % 2);
  for (int c = 0; c < more; ++c) {
    SuffixClass other;
    other.devices = 1 + static_cast<int>(random() % (more == 2 ? 2 : 3));
    for (const Time compute : problem.compute)
      other.compute.push_back({compute.value * static_cast<std::int64_t>(random() % 4) / 2});
    for (std::size_t i = 0; i < problem.apart.size(); ++i)
      other.apart.push_back({other.compute[i].value / 3});
    other.per_stage = {static_cast<std::int64_t>(random() % 3)};
    if (problem.capacity.value < kLargest) other.capacity = {static_cast<std::int64_t>(10 + random() % 150)};
    problem.others.push_back(other);
  }
  return problem;
}

// A plan's figures, from the formulas of suffix_oracle.hpp and each stage's place among the devices of its class.
struct PlacedPlan {
  std::vector<LayerRange> layers{};
  std::vector<int> replicas{}, classes{};

  std::int64_t time(const SuffixProblem& problem, std::size_t k, int behind) const {
    const int c = classes[k], r = replicas[k];
    const SuffixProblem of_class = problem.of_class(c);
    const std::int64_t compute = (sum(of_class.compute, layers[k]) + of_class.per_stage.value + r - 1) / r;
    if (problem.devices_per_node == 0) return std::max(compute, time_of(of_class, layers[k], r));
    const bool in_front = k == 0 || classes[k - 1] == c, next = k + 1 == classes.size() || classes[k + 1] == c;
    const double link = link_time_on_nodes(of_class, layers[k], r, behind, {in_front, next});
    return std::max(compute, static_cast<std::int64_t>(std::ceil(link - 1e-6)));
  }
  // The slowest stage, and the most that a device lacks (0 or less: it fits).
  std::pair<std::int64_t, std::int64_t> judged(const SuffixProblem& problem) const {
    std::int64_t slowest = 0, lacks = std::numeric_limits<std::int64_t>::min();
    std::array<int, 3> behind{};
    for (std::size_t k = layers.size(); k-- > 0;) {
      const int all = behind[0] + behind[1] + behind[2];
      int& of_class = behind[static_cast<std::size_t>(classes[k])];
      slowest = std::max(slowest, time(problem, k, of_class));
      const std::int64_t capacity = problem.of_class(classes[k]).capacity.value;
      lacks = std::max(lacks, memory_of(problem, layers[k], replicas[k], all) - capacity);
      of_class += replicas[k];
    }
    return {slowest, lacks};
  }
};

// Bottleneck, stages, devices.
using ClassesKey = std::tuple<std::int64_t, std::size_t, int>;

struct ClassesBrute {
  const SuffixProblem& problem;
  PlacedPlan plan{};
  std::optional<ClassesKey> best{};
  std::optional<std::int64_t> least_lacking{};

  void plans(int begin, std::vector<int> devices) {
    const int end = static_cast<int>(problem.compute.size());
    if (begin == end) return judge();
    for (int next = begin + 1; next <= end; ++next)
      for (int c = 0; c < problem.classes(); ++c)
        for (int r = 1; r <= devices[static_cast<std::size_t>(c)]; ++r) {
          if (!problem.replicas.empty() && std::count(problem.replicas.begin(), problem.replicas.end(), r) == 0)
            continue;
          plan.layers.push_back({begin, next}), plan.replicas.push_back(r), plan.classes.push_back(c);
          std::vector<int> left = devices;
          left[static_cast<std::size_t>(c)] -= r;
          plans(next, left);
          plan.layers.pop_back(), plan.replicas.pop_back(), plan.classes.pop_back();
        }
  }
  void judge() {
    if (problem.stages != 0 && static_cast<int>(plan.layers.size()) != problem.stages) return;
    const auto [time, lacks] = plan.judged(problem);
    if (!least_lacking || lacks < *least_lacking) least_lacking = lacks;
    if (lacks > 0) return;
    const ClassesKey key{time, plan.layers.size(), std::accumulate(plan.replicas.begin(), plan.replicas.end(), 0)};
    if (!best || key < *best) best = key;
  }
};

ClassesBrute brute_force_on_classes(const SuffixProblem& problem) {
  ClassesBrute brute{problem};
  std::vector<int> devices{problem.devices};
  for (const SuffixClass& other : problem.others)
    devices.push_back(other.devices);
  brute.plans(0, devices);
  return brute;
}

PlacedPlan placed(const SuffixAnswer& answer) {
  PlacedPlan plan;
  for (const SuffixStage& stage : answer.stages) {
    plan.layers.push_back(stage.layers);
    plan.replicas.push_back(stage.replicas), plan.classes.push_back(stage.device_class);
  }
  return plan;
}

void holds_what_it_says(const SuffixAnswer& answer, const SuffixProblem& problem) {
  const auto [time, lacks] = placed(answer).judged(problem);
  CHECK(time == answer.bottleneck.value);
  CHECK(lacks <= 0);
  CHECK(answer.stages.front().layers.begin == 0);
  CHECK(answer.stages.back().layers.end == static_cast<int>(problem.compute.size()));
  for (int c = 0; c < problem.classes(); ++c) {
    int used = 0;
    for (const SuffixStage& stage : answer.stages)
      used += stage.device_class == c ? stage.replicas : 0;
    CHECK(used <= problem.of_class(c).devices);
  }
}

std::vector<int> classes_of(const SuffixAnswer& answer) {
  return placed(answer).classes;
}

TEST_CASE("On two and three classes suffix_dp equals brute force over cuts, replicas and the class of every stage" *
          doctest::test_suite("whole searches")) {
  std::mt19937 random(41);
  int fit = 0, none = 0, mixed = 0;
  for (int round = 0; round < 700; ++round) {
    const SuffixProblem problem = random_classes(random, round % 2 == 1);
    CAPTURE(round);
    const SuffixAnswer answer = suffix_dp(problem);
    const ClassesBrute brute = brute_force_on_classes(problem);
    REQUIRE(!answer.stages.empty() == brute.best.has_value());
    if (brute.best) {
      ++fit;
      CHECK(ClassesKey{answer.bottleneck.value, answer.stages.size(), answer.devices} == *brute.best);
      holds_what_it_says(answer, problem);
      const std::vector<int> classes = classes_of(answer);
      mixed += std::count(classes.begin(), classes.end(), classes.front()) < std::ssize(classes) ? 1 : 0;
    } else if (brute.least_lacking) {
      ++none;
      CHECK(answer.missing.value == *brute.least_lacking);
      REQUIRE(answer.hungriest);
      const std::int64_t capacity = problem.of_class(answer.hungriest->device_class).capacity.value;
      CHECK(answer.hungriest->memory.value - capacity == answer.missing.value);
      SuffixProblem roomier = problem;
      roomier.capacity += answer.missing;
      for (SuffixClass& other : roomier.others)
        other.capacity += answer.missing;
      CHECK_FALSE(suffix_dp(roomier).stages.empty());
    }
  }
  CHECK(fit > 400);
  CHECK(none > 20);
  CHECK(mixed > 150);
}

TEST_CASE("Eight layers on three devices and one of half the speed") {
  SuffixProblem problem{.compute = list<Time>(std::vector<std::int64_t>(8, 6)), .devices = 3};
  problem.others = {{.compute = list<Time>(std::vector<std::int64_t>(8, 12)), .devices = 1}};
  CHECK(suffix_dp(problem).bottleneck == Time{14});  // 7 layers on three replicas, 42 / 3, and 1 on the slow one, 12
  problem.replicas = {1};
  CHECK(suffix_dp(problem).bottleneck == Time{18});              // 2 2 3 layers, and 1
  CHECK(suffix_dp(problem.of_class(0)).bottleneck == Time{18});  // 3 3 2
  problem.others.front().compute = problem.compute;
  CHECK(suffix_dp(problem).bottleneck == Time{12});  // 2 2 2 2
}

TEST_CASE("The order of the classes is searched: the fast one comes where the work is, the large one where memory is") {
  SuffixProblem problem{.compute = list<Time>({40, 10}), .devices = 1};
  problem.others = {{.compute = list<Time>({20, 5}), .devices = 1}};
  problem.replicas = {1}, problem.stages = 2;
  CHECK(classes_of(suffix_dp(problem)) == std::vector<int>{1, 0});
  std::reverse(problem.compute.begin(), problem.compute.end());
  std::reverse(problem.others[0].compute.begin(), problem.others[0].compute.end());
  CHECK(classes_of(suffix_dp(problem)) == std::vector<int>{0, 1});
  // Two micro-batches in flight on the first stage, 2 x 3 bytes, one on the last: only the first class holds six.
  problem.stash = list<Bytes>({3, 3}), problem.capacity = {6}, problem.others[0].capacity = {5};
  CHECK(classes_of(suffix_dp(problem)) == std::vector<int>{0, 1});
  problem.capacity = {5}, problem.others[0].capacity = {6};
  const SuffixAnswer turned = suffix_dp(problem);
  CHECK(classes_of(turned) == std::vector<int>{1, 0});
  CHECK(turned.bottleneck == Time{40});  // the heavy layer on the slow device, 40 instead of 20
}

TEST_CASE("A class may come twice, with another one between") {
  // Layers of 6 on A; B does the middle one alone four times as fast.
  SuffixProblem problem{.compute = list<Time>({6, 24, 6}), .devices = 2};
  problem.others = {{.compute = list<Time>({24, 6, 24}), .devices = 1}};
  const SuffixAnswer answer = suffix_dp(problem);
  CHECK(answer.bottleneck == Time{6});
  CHECK(classes_of(answer) == std::vector<int>{0, 1, 0});
}

TEST_CASE("Messages between classes leave their nodes, also where the stage shares its node with one of its class") {
  // Nodes of two devices: A B A puts both A stages into one node, but their messages go through B's.
  SuffixProblem problem{.compute = list<Time>({6, 24, 6}), .boundary = list<Bytes>({20, 20, 0}), .devices = 2};
  problem.devices_per_node = 2, problem.inside = Bandwidth{100e9}, problem.bandwidth = kByteANanosecond;
  problem.others = {{.compute = list<Time>({24, 6, 24}), .devices = 1}}, problem.replicas = {1};
  CHECK(classes_of(suffix_dp(problem)) == std::vector<int>{0, 0, 1});
  CHECK(suffix_dp(problem).bottleneck == Time{24});  // A B A: 20 + 20 on the link of B's node
  problem.bandwidth = Bandwidth{4e9};
  const SuffixAnswer answer = suffix_dp(problem);
  CHECK(answer.bottleneck == Time{10});  // 40 / 4 over the link of B's node
  CHECK(classes_of(answer) == std::vector<int>{0, 1, 0});
}

TEST_CASE("One class by the classes' recursion is the result of the one without") {
  std::mt19937 random(42);
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    SuffixProblem problem = round % 2 == 0 ? random_problem(random, 8, 5) : random_on_nodes(random, 7, 6);
    if (round % 3 == 0) problem.devices += 20;  // many numbers of replicas: a bound by few of them comes first
    const SuffixAnswer plain = suffix_dp(problem), answer = suffix_dp_on_classes(problem);
    REQUIRE(answer.stages.empty() == plain.stages.empty());
    CHECK(answer.missing == plain.missing);
    if (plain.stages.empty()) continue;
    CHECK(answer.bottleneck == plain.bottleneck);
    CHECK(answer.stages.size() == plain.stages.size());
    holds_what_it_says(answer, problem);
  }
}

TEST_CASE(
    "One more device of any class, or more memory, never worsens the bottleneck; the same question, the same plan") {
  std::mt19937 random(43);
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    const SuffixProblem problem = random_classes(random, round % 2 == 1);
    const SuffixAnswer answer = suffix_dp(problem);
    CHECK(suffix_dp(problem).stages == answer.stages);
    if (answer.stages.empty()) continue;
    for (int c = 0; c < problem.classes(); ++c) {
      SuffixProblem more = problem, roomier = problem;
      const auto other = static_cast<std::size_t>(c) - 1;
      ++(c == 0 ? more.devices : more.others[other].devices);
      CHECK(suffix_dp(more).bottleneck <= answer.bottleneck);
      Bytes& room = c == 0 ? roomier.capacity : roomier.others[other].capacity;
      if (room.value < kLargest) room += Bytes{5};
      CHECK(suffix_dp(roomier).bottleneck <= answer.bottleneck);
    }
  }
}

TEST_CASE("No placement on several classes is faster than `Anywhere` says, and every number of stages comes at once") {
  std::mt19937 random(44);
  int found = 0;
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    SuffixProblem problem = random_classes(random, round % 2 == 1);
    problem.stages = 0;
    SuffixProblem bound = problem;
    bound.places = StagePlaces::Anywhere;
    CHECK(suffix_dp(bound).bottleneck <= suffix_dp(problem).bottleneck);
    const Time unlimited = suffix_dp(problem).bottleneck;
    if (random() % 2 == 0 && unlimited > Time{}) problem.limit = Time{unlimited.value + unlimited.value / 4};
    const std::vector<SuffixAnswer> answers = suffix_dp_by_stages(problem, 3);
    for (int q = 1; q <= 3; ++q) {
      problem.stages = q;
      const SuffixAnswer one = suffix_dp(problem);
      const auto first = std::find_if(answers.begin(), answers.end(),
                                      [q](const SuffixAnswer& each) { return std::ssize(each.stages) == q; });
      REQUIRE((first != answers.end()) == !one.stages.empty());
      if (first == answers.end()) continue;
      ++found;
      CHECK(first->bottleneck == one.bottleneck);
      holds_what_it_says(*first, problem);
    }
  }
  CHECK(found > 150);
}

}  // namespace
}  // namespace pipewright::tests
