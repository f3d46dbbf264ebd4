// The plan that needs least memory, against all plans of small spaces; and the memory that is named where none fits.
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "planner/search/search.hpp"
#include "tests/planner/small_spaces.hpp"

using namespace pipewright::tests;

namespace {

// Three devices, five layers; every cut, every set of recomputed layers, stages in full, two schedules.
Scenario small_space(std::mt19937& random) {
  Scenario scenario = random_scenario(random, 5, 3);
  open(scenario, {"stages", "recompute", "partition"});
  scenario.plan.open["schedule"].among = {"1f1b", "gpipe"};
  return scenario;
}

double least_of_all(const Scenario& scenario) {
  double least = std::numeric_limits<double>::infinity();
  for (const Layout& layout : all_layouts(scenario))
    least = std::min(least, best_with_sets(scenario, layout, Objective::Memory));
  return least;
}

SearchAnswer least_memory_of(const Scenario& scenario) {
  const auto found = search(scenario, {.objective = Objective::Memory, .top = 1, .gap = 0, .time_limit = 600});
  REQUIRE(std::holds_alternative<SearchAnswer>(found));
  return std::get<SearchAnswer>(found);
}

// The value of "--set cluster.node.device.memory=203MiB" in the remedies.
Bytes named_memory(const Infeasible& none) {
  const std::string key = "--set cluster.node.device.memory=";
  for (const std::string& line : none.remedies)
    if (const auto at = line.find(key); at != std::string::npos) {
      std::size_t digits = 0;
      const std::int64_t count = std::stoll(line.substr(at + key.size()), &digits);
      const std::string unit = line.substr(at + key.size() + digits);
      return {count * (unit == "MiB" ? 1 << 20 : unit == "KiB" ? 1 << 10 : 1)};
    }
  return {};
}

}  // namespace

TEST_CASE("the memory objective finds the least memory of all plans, whatever fits without recomputation" *
          doctest::test_suite("whole searches")) {
  std::mt19937 random(21);
  int recomputed = 0, exact = 0;
  for (int i = 0; i < 8; ++i) {
    CAPTURE(i);
    Scenario scenario = small_space(random);
    // Buffers need a clock, and are no part of what cuts are chosen by: without them the answer is exact.
    const bool buffers = i >= 6;
    if (!buffers)
      for (Layer& layer : scenario.model.layers)
        layer.stash = layer.stashed() - layer.activation, layer.activation = {};
    scenario.cluster.device.memory = Bytes{std::int64_t{1} << 40};
    const double least = least_of_all(scenario);
    const SearchAnswer answer = least_memory_of(scenario);
    const Found& best = answer.plans.front();
    CHECK(best.value == static_cast<double>(best.peak.value));
    CHECK(answer.bound <= least);
    CHECK(best.value >= least);
    if (buffers) continue;
    CHECK(best.value == least);
    if (answer.proven()) ++exact;
    const auto& modes = best.plan.recompute;
    if (std::any_of(modes.begin(), modes.end(), [](Recompute mode) { return mode != Recompute::None; })) ++recomputed;
  }
  CHECK(recomputed >= 5);
  CHECK(exact == 6);
}

TEST_CASE("of plans that need as little memory, the fastest: layers that fit are not recomputed") {
  Scenario scenario = uniform_scenario({.layers = 4, .devices = 2, .stages = 2, .micro_batches = 2});
  for (Layer& layer : scenario.model.layers)
    layer.stash = Bytes{1000}, layer.activation = Bytes{}, layer.parameters = 0;
  scenario.model.layers[0].parameters = 10'000;  // the first stage needs more than the second, whatever it recomputes
  open(scenario, {"partition", "recompute"});
  const Found best = least_memory_of(scenario).plans.front();
  CHECK(best.plan.recompute.at(1) == Recompute::None);
}

TEST_CASE("where nothing fits, the memory named is enough, and a byte less is not") {
  std::mt19937 random(23);
  for (int i = 0; i < 6; ++i) {
    CAPTURE(i);
    Scenario scenario = small_space(random);
    if (i < 4)
      for (Layer& layer : scenario.model.layers)
        layer.stash = layer.stashed() - layer.activation, layer.activation = {};
    scenario.cluster.device.memory = Bytes{1000};
    const auto nothing = search(scenario, {.top = 1});
    REQUIRE(std::holds_alternative<Infeasible>(nothing));
    const Bytes named = named_memory(std::get<Infeasible>(nothing));
    scenario.cluster.device.memory = named;
    CHECK(std::holds_alternative<SearchAnswer>(search(scenario, {.top = 1})));
    // What is named is the least of all plans, rounded up.
    scenario.cluster.device.memory = Bytes{std::int64_t{1} << 40};
    const auto least = static_cast<std::int64_t>(least_of_all(scenario));
    const std::int64_t unit = least >= 64 << 20 ? 1 << 20 : 1 << 10;
    if (i < 4) CHECK(named.value == (least + unit - 1) / unit * unit);
    scenario.cluster.device.memory = Bytes{least - 1};
    CHECK(std::holds_alternative<Infeasible>(search(scenario, {.top = 1})));
  }
}
