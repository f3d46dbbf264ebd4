// The range over the bands of the efficiencies, of short runs and of long ones.
#include "planner/what_if/speed_range.hpp"

#include <doctest/doctest.h>

#include "planner/answer.hpp"
#include "planner/search/search.hpp"
#include "tests/planner/small_spaces.hpp"
#include "tests/support/family_model.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright;

namespace {

// A small Transformer in four copies of two stages, on a device of which matrix products reach 50 %, give or take 30.
Scenario banded() {
  Scenario scenario = uniform_scenario({.layers = 3, .devices = 8, .stages = 2, .micro_batches = 4});
  scenario.model = family_model(
      "gpt", {{"layers", "6"}, {"hidden", "64"}, {"heads", "4"}, {"sequence_length", "32"}, {"vocabulary", "512"}});
  settle(scenario.model, Bytes{4}, {});
  scenario.cost = CostSourceKind::Roofline;
  scenario.cluster.device.peak[Precision::Fp32] = FlopRate{1e12};
  scenario.cluster.device.memory_bandwidth = Bandwidth{1e12};
  Efficiency half;
  half.curve = {{0.0, 0.5}}, half.band = 0.3;
  for (auto& each : scenario.cluster.device.efficiency)
    each = half;
  scenario.cluster.links.kind = LinkKind::Mesh;
  scenario.cluster.links.bandwidth = Bandwidth{1e10};
  scenario.plan.data_parallel.value = 4;
  scenario.plan.partition.value = Balanced{};
  return scenario;
}

}  // namespace

TEST_CASE("a long run's range is that of copies that run alike") {
  const Scenario scenario = banded();
  const auto told = answer(scenario, {.ignore_memory = true});
  const Answer& whole = std::get<Answer>(told);
  const auto repeated = speed_range(whole, Engine::Auto).range, alike = speed_range(whole, Engine::Auto, 0).range;
  REQUIRE(repeated.has_value());
  REQUIRE(alike.has_value());
  CHECK(repeated->fastest < whole.report.step_time);
  CHECK(repeated->slowest > whole.report.step_time);
  CHECK(std::abs(alike->fastest.value - repeated->fastest.value) <= 1);
  CHECK(std::abs(alike->slowest.value - repeated->slowest.value) <= 1);
}

TEST_CASE("a plan that a search has found has the range that its answer has") {
  Scenario scenario = banded();
  open(scenario, {"stages", "data_parallel", "partition"});
  scenario.origins.clear();
  const auto found = std::get<SearchAnswer>(search(scenario, {.top = 1}));
  const Found& best = found.plans.front();
  const auto told = answer(*best.scenario, {.ignore_memory = true});
  const auto range = speed_range(best);
  REQUIRE(range.has_value());
  CHECK(range->fastest == std::get<Answer>(told).report.range->fastest);
  CHECK(range->slowest == std::get<Answer>(told).report.range->slowest);
  Scenario exact = scenario;
  for (auto& each : exact.cluster.device.efficiency)
    each->band = 0;
  CHECK_FALSE(speed_range(std::get<SearchAnswer>(search(exact, {.top = 1})).plans.front()).has_value());
}
