#include "tests/papers/pipedream_optimizer.hpp"

#include <algorithm>
#include <limits>
#include <random>

#include <doctest/doctest.h>

using namespace pipewright::tests;

namespace {

constexpr Bandwidth kFast{1e9};  // one byte per nanosecond

ChainCosts random_chain(std::mt19937& random, int layers) {
  ChainCosts chain;
  for (int i = 0; i < layers; ++i) {
    chain.compute.push_back(Time{1 + static_cast<std::int64_t>(random() % 100)});
    chain.parameters.push_back(Bytes{static_cast<std::int64_t>(random() % 60)});
    chain.boundary.push_back(Bytes{static_cast<std::int64_t>(random() % 30)});
  }
  return chain;
}

double stage_seconds(const ChainCosts& chain, int begin, int end, int replicas) {
  double compute = 0, bytes = 0;
  for (int i = begin; i < end; ++i) {
    compute += static_cast<double>(chain.compute[static_cast<std::size_t>(i)].value) * 1e-9;
    bytes += static_cast<double>(chain.parameters[static_cast<std::size_t>(i)].value);
  }
  return std::max(compute, 2 * (replicas - 1) * bytes / kFast.value) / replicas;
}

// Every cut and every number of replicas, by the printed rule.
double best_by_brute_force(const ChainCosts& chain, int begin, int machines) {
  const int layers = static_cast<int>(chain.compute.size());
  double best = stage_seconds(chain, begin, layers, machines);
  for (int end = begin + 1; end < layers; ++end)
    for (int replicas = 1; replicas < machines; ++replicas) {
      const double transfer =
          2 * static_cast<double>(chain.boundary[static_cast<std::size_t>(end) - 1].value) / kFast.value;
      const double rest = best_by_brute_force(chain, end, machines - replicas);
      best = std::min(best, std::max({stage_seconds(chain, begin, end, replicas), transfer, rest}));
    }
  return best;
}

}  // namespace

// compute 30 30 60, no weights, no transfers, 3 machines: alone 120 / 3 = 40; (30 30)x2 and 60: 60; all three equal 40.
TEST_CASE("without weights and transfers the fewest stages of the best time are taken") {
  ChainCosts chain{{Time{30}, Time{30}, Time{60}}, {Bytes{}, Bytes{}, Bytes{}}, {Bytes{}, Bytes{}, Bytes{}}};
  const MachineLevel level{3, kFast};
  const PipeDreamPlan plan = pipedream(chain, std::span(&level, 1), PipeDreamRule::Sosp, PipeDreamTransfer::Whole);
  CHECK(plan.stages == std::vector<PipeDreamStage>{{{0, 3}, 3}});
  CHECK(plan.time == doctest::Approx(40e-9));
}

// Two layers of 100 ns, 1000 B of weights in the second, 4 machines: replicating it costs 2 (m-1) 1000 ns / m.
TEST_CASE("a layer with many weights is not replicated") {
  ChainCosts chain{{Time{300}, Time{100}}, {Bytes{0}, Bytes{1000}}, {Bytes{10}, Bytes{}}};
  const MachineLevel level{4, kFast};
  const PipeDreamPlan plan = pipedream(chain, std::span(&level, 1), PipeDreamRule::Sosp, PipeDreamTransfer::Whole);
  CHECK(plan.stages == std::vector<PipeDreamStage>{{{0, 1}, 3}, {{1, 2}, 1}});
  CHECK(plan.time == doctest::Approx(100e-9));
}

TEST_CASE("the three rules price one replicated stage as they are printed") {
  ChainCosts chain{{Time{120}}, {Bytes{100}}, {Bytes{}}};
  const MachineLevel level{4, kFast};
  const auto time = [&](PipeDreamRule rule) {
    return pipedream(chain, std::span(&level, 1), rule, PipeDreamTransfer::None).time;
  };
  CHECK(time(PipeDreamRule::Sosp) == doctest::Approx(600e-9 / 4));                  // 2 * 3 * 100 ns > 120 ns
  CHECK(time(PipeDreamRule::Released) == doctest::Approx((120 + 300) * 1e-9 / 4));  // 4 * 3/4 * 100 ns more
  CHECK(time(PipeDreamRule::Ring) == doctest::Approx(150e-9 / 4));                  // 2 * 3/4 * 100 ns > 120 ns
}

TEST_CASE("the program is as good as every cut and every number of replicas") {
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    const ChainCosts chain = random_chain(random, 1 + static_cast<int>(random() % 5));
    const MachineLevel level{1 + static_cast<int>(random() % 5), kFast};
    const PipeDreamPlan plan = pipedream(chain, std::span(&level, 1), PipeDreamRule::Sosp, PipeDreamTransfer::Whole);
    CHECK(plan.time == doctest::Approx(best_by_brute_force(chain, 0, level.machines)));
  }
}

TEST_CASE("stages cover the chain and replicas use every machine, over two levels as well") {
  std::mt19937 random(4);
  for (int i = 0; i < 40; ++i) {
    const ChainCosts chain = random_chain(random, 1 + static_cast<int>(random() % 6));
    const MachineLevel levels[] = {{2, kFast}, {3, Bandwidth{1e8}}};
    const PipeDreamPlan plan = pipedream(chain, levels, PipeDreamRule::Ring, PipeDreamTransfer::Whole);
    LayerId next = 0;
    int machines = 0;
    for (const PipeDreamStage& stage : plan.stages) {
      CHECK(stage.layers.begin == next);
      CHECK(stage.layers.size() > 0);
      next = stage.layers.end, machines += stage.replicas;
    }
    CHECK(next == static_cast<LayerId>(chain.compute.size()));
    CHECK(machines == 6);
  }
}
