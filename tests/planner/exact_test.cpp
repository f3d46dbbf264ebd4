#include "planner/partitioners/exact.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include <doctest/doctest.h>

#include "planner/partitioners/min_max.hpp"
#include "planner/partitioners/suffix_dp.hpp"

namespace pipewright::tests {
namespace {

const std::vector<std::string> kSchedules = {"1f1b", "gpipe", "eager_1f1b"};

ExactProblem random_exact_problem(std::mt19937& random, int most_layers, int most_stages) {
  ExactProblem problem;
  const int layers = 1 + static_cast<int>(random() % static_cast<unsigned>(most_layers));
  problem.schedule = kSchedules[random() % kSchedules.size()];
  problem.stages = 1 + static_cast<int>(random() % static_cast<unsigned>(std::min(layers, most_stages)));
  problem.micro_batches = 1 + static_cast<int>(random() % 16);
  const std::uint32_t hop = std::vector<std::uint32_t>{1, 10, 60}[random() % 3];  // 1: none
  for (int i = 0; i < layers; ++i) {
    problem.forward.push_back({static_cast<std::int64_t>(random() % 40)});
    problem.backward.push_back({static_cast<std::int64_t>(random() % 80)});
    problem.hop.push_back({static_cast<std::int64_t>(random() % hop)});
  }
  return problem;
}

template <class Use>
void each_partition(const ExactProblem& problem, std::vector<LayerRange>& layers, const Use& use) {
  const int end = static_cast<int>(problem.forward.size()), begin = layers.empty() ? LayerId{0} : layers.back().end;
  if (static_cast<int>(layers.size()) == problem.stages) {
    if (begin == end) use(layers);
    return;
  }
  for (int next = begin + 1; next <= end; ++next) {
    layers.push_back({begin, next});
    each_partition(problem, layers, use);
    layers.pop_back();
  }
}

Time step_of(const ExactProblem& problem, const std::vector<LayerRange>& layers) {
  return plain_step(problem.schedule, stage_times(problem, layers), problem.micro_batches);
}

// Least simulated step over all partitions that fit; kNever: none.
Time brute_force(const ExactProblem& problem) {
  Time best = kNever;
  std::vector<LayerRange> all;
  each_partition(problem, all, [&](const std::vector<LayerRange>& layers) {
    for (StageId k = 0; k < problem.stages && problem.fits; ++k)
      if (!problem.fits(k, layers[static_cast<std::size_t>(k)])) return;
    best = std::min(best, step_of(problem, layers));
  });
  return best;
}

std::vector<Time> both_passes(const ExactProblem& problem) {
  std::vector<Time> load;
  for (std::size_t i = 0; i < problem.forward.size(); ++i)
    load.push_back(problem.forward[i] + problem.backward[i]);
  return load;
}

TEST_CASE("A straight pipeline with different hops, by hand") {
  // One micro-batch: 2 + 3 + 1 forwards and hops, then 5 + 3 + 2 back: no overlap.
  CHECK(plain_step("1f1b", {{Time{2}, Time{1}}, {Time{2}, Time{5}}, {Time{3}}}, 1) == Time{16});
  CHECK(plain_step("gpipe", {{Time{1}, Time{1}, Time{1}}, {Time{1}, Time{1}, Time{1}}, {Time{10}, Time{1}}}, 1) ==
        Time{28});  // 6 of work, 2 (10 + 1) of hops
}

TEST_CASE("Four equal layers on two stages: the middle is proven best at once") {
  const ExactProblem problem{.schedule = "1f1b",
                             .stages = 2,
                             .micro_batches = 4,
                             .forward = std::vector<Time>(4, Time{1}),
                             .backward = std::vector<Time>(4, Time{1})};
  const ExactAnswer answer = exact(problem);
  CHECK(answer.layers == std::vector<LayerRange>{{0, 2}, {2, 4}});
  CHECK(answer.step == Time{20});  // (M + K - 1)(f + b) = 5 * 4
  CHECK(answer.proven());
  CHECK(answer.simulations == 1);
}

TEST_CASE("The search equals brute force over simulated steps, and its lower bound holds") {
  std::mt19937 random(31);
  for (int round = 0; round < 600; ++round) {
    const ExactProblem problem = random_exact_problem(random, 12, 4);
    CAPTURE(problem.schedule);
    CAPTURE(round);
    const ExactAnswer answer = exact(problem);
    CHECK(answer.step == brute_force(problem));
    CHECK(answer.step == step_of(problem, answer.layers));
    CHECK(answer.proven());
    CHECK(answer.gap() == 0);
  }
}

TEST_CASE("GPipe's bound is its step: two simulations prove the optimum") {
  std::mt19937 random(32);
  for (int round = 0; round < 200; ++round) {
    ExactProblem problem = random_exact_problem(random, 30, 6);
    problem.schedule = "gpipe";
    const ExactAnswer answer = exact(problem);
    CHECK(answer.proven());
    CHECK(answer.simulations <= 2);  // the first guess, and the optimum
  }
}

TEST_CASE("Only partitions that fit are looked at") {
  std::mt19937 random(33);
  int none = 0, tight = 0;
  for (int round = 0; round < 400; ++round) {
    ExactProblem problem = random_exact_problem(random, 10, 4);
    const Time free = brute_force(problem);
    // Layers of sizes 1 to 4, kept K - k times by stage k, in 16 bytes.
    std::vector<int> sizes;
    for (std::size_t i = 0; i < problem.forward.size(); ++i)
      sizes.push_back(1 + static_cast<int>(random() % 4));
    problem.fits = [&](StageId k, LayerRange range) {
      return (problem.stages - k) * std::accumulate(sizes.begin() + range.begin, sizes.begin() + range.end, 0) <= 16;
    };
    const ExactAnswer answer = exact(problem);
    const Time best = brute_force(problem);
    REQUIRE(answer.layers.empty() == (best == kNever));
    none += answer.layers.empty() ? 1 : 0;
    if (answer.layers.empty()) continue;
    CHECK(answer.step == best);
    CHECK(answer.proven());
    tight += best > free ? 1 : 0;
  }
  CHECK(none > 10);
  CHECK(tight > 10);
}

TEST_CASE("A callback prices what the table does not know, and the search stays exact") {
  std::mt19937 random(34);
  for (int round = 0; round < 200; ++round) {
    ExactProblem problem = random_exact_problem(random, 9, 4);
    const auto dear = [&](const std::vector<LayerRange>& layers) {  // an odd number of layers costs 40 ns more
      std::int64_t odd = 0;
      for (const LayerRange range : layers)
        odd += range.size() % 2;
      return step_of(problem, layers) + Time{40 * odd};
    };
    Time best = kNever;
    std::vector<LayerRange> all;
    each_partition(problem, all, [&](const std::vector<LayerRange>& layers) { best = std::min(best, dear(layers)); });
    ExactProblem priced = problem;
    priced.step = dear;
    CHECK(exact(priced).step == best);
  }
}

TEST_CASE("A limit leaves a gap that holds the optimum") {
  std::mt19937 random(35);
  int open = 0;
  for (int round = 0; round < 300; ++round) {
    ExactProblem problem = random_exact_problem(random, 12, 4);
    problem.schedule = "1f1b";
    const Time best = exact(problem).step;
    ExactProblem short_one = problem, small = problem;
    short_one.most_simulations = 1 + static_cast<std::int64_t>(random() % 3);
    small.most_prefixes = 1 + static_cast<std::int64_t>(random() % 20);
    for (const ExactAnswer& answer : {exact(short_one), exact(small)}) {
      CHECK(answer.lower_bound <= best);
      CHECK(answer.step >= best);
      open += answer.proven() ? 0 : 1;
    }
    CHECK(exact(short_one).simulations <= short_one.most_simulations);
  }
  CHECK(open > 50);
}

TEST_CASE("No plan of the steady state beats it: suffix_dp's and min_max's partitions are never faster") {
  std::mt19937 random(36);
  int worse_dp = 0, worse_min_max = 0;
  for (int round = 0; round < 300; ++round) {
    const ExactProblem problem = random_exact_problem(random, 16, 5);
    SuffixProblem chain{.compute = both_passes(problem), .devices = problem.stages, .replicas = {1}};
    for (const Time hop : problem.hop)
      chain.boundary.push_back({hop.value});
    chain.bandwidth = {1e9};  // a byte takes a nanosecond
    chain.stages = problem.stages;
    std::vector<LayerRange> layers;
    for (const SuffixStage& stage : suffix_dp(chain).stages)
      layers.push_back(stage.layers);
    const Time best = exact(problem).step;
    CHECK(step_of(problem, layers) >= best);
    CHECK(step_of(problem, min_max(chain.compute, problem.stages)) >= best);
    worse_dp += step_of(problem, layers) > best ? 1 : 0;
    worse_min_max += step_of(problem, min_max(chain.compute, problem.stages)) > best ? 1 : 0;
  }
  CHECK(worse_dp > 30);
  CHECK(worse_min_max > 30);
}

}  // namespace
}  // namespace pipewright::tests
