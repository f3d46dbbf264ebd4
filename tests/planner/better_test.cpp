// Which of the plans found is the best one: ties, objectives, however many are asked for.
#include <map>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "planner/search/found.hpp"
#include "planner/search/search.hpp"
#include "tests/planner/small_spaces.hpp"
#include "tests/support/family_model.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright::tests;

TEST_CASE("the best plan is the same however many plans are asked for" * doctest::test_suite("whole searches")) {
  std::mt19937 random(21);
  int several = 0;
  for (int i = 0; i < 12; ++i) {
    Scenario scenario = random_scenario(random, 7, 4);
    scenario.cluster.device.memory.value *= 2;
    open(scenario, {"stages", "data_parallel", "recompute", "schedule", "virtual_stages", "partition"},
         {"micro_batch_size", "zero"});
    std::optional<Found> best;
    for (const int top : {1, 2, 3, 5, 9, 40}) {
      const auto result = search(scenario, {.top = top, .time_limit = 600});
      const auto* answer = std::get_if<SearchAnswer>(&result);
      if (answer == nullptr) break;
      CHECK(std::ssize(answer->plans) <= top);
      const Found& first = answer->plans.front();
      if (!best) best = first;
      CAPTURE(i);
      CAPTURE(top);
      CHECK(first.layout == best->layout);
      CHECK(first.plan.layers == best->plan.layers);
      CHECK(first.plan.recompute == best->plan.recompute);
      CHECK(first.value == best->value);
      several += top > 1;
    }
  }
  CHECK(several >= 30);
}

namespace {

Found on_devices(double value, int stages) {
  Found found;
  found.value = value;
  found.layout.stages = found.plan.stages = stages;
  found.plan.replicas.assign(static_cast<std::size_t>(stages), 1);
  return found;
}

}  // namespace

// 100 / 99.95 = 1.0005: a tie. 100 / 99.8 = 1.002 is none.
TEST_CASE("of plans that differ by a thousandth at most the one with fewer devices is the first") {
  std::vector<Found> plans = {on_devices(1 / 100.0, 4), on_devices(1 / 99.95, 3), on_devices(1 / 99.93, 3),
                              on_devices(1 / 99.8, 1)};
  prefer_fewer_devices(plans, {});
  CHECK(plans[0].value == 1 / 99.95);
  CHECK(plans[1].value == 1 / 100.0);
  CHECK(plans[2].value == 1 / 99.93);
  CHECK(plans[3].value == 1 / 99.8);
  CHECK(tie({}) == 0.001);
  CHECK(tie({.gap = 0.0004}) == 0.0004);
  CHECK(tie({.gap = 0}) == 0);
  CHECK(tie({.objective = Objective::Memory}) == 0);
}

TEST_CASE("of plans that need equal memory the faster one stays the first, however many devices it has") {
  std::vector<Found> plans = {on_devices(1e9, 4), on_devices(1e9, 2)};
  prefer_fewer_devices(plans, {.objective = Objective::Memory});
  CHECK(plans[0].plan.devices() == 4);
}

// Layers of 2 ms and 500 ns, two micro-batches: 4 ms and 1 us on one device, 4 ms on two.
TEST_CASE("the search leaves a device idle that brings less than a thousandth, unless it is asked for the very best") {
  Scenario scenario = uniform_scenario({.layers = 2, .devices = 2, .stages = 1, .micro_batches = 2});
  scenario.model.layers[0].forward = Time{800'000}, scenario.model.layers[0].backward = Time{1'200'000};
  scenario.model.layers[1].forward = Time{200}, scenario.model.layers[1].backward = Time{300};
  open(scenario, {"stages", "partition"});
  for (const int top : {1, 2}) {
    const auto near = std::get<SearchAnswer>(search(scenario, {.top = top}));
    CHECK(near.plans.front().plan.devices() == 1);
    CHECK(near.plans.front().report.step_time == Time{4'001'000});
    CHECK(near.idle_devices == 1);
    CHECK(near.bound <= 4e-3 / 2);
    const auto best = std::get<SearchAnswer>(search(scenario, {.top = top, .gap = 0}));
    CHECK(best.plans.front().plan.devices() == 2);
    CHECK(best.plans.front().report.step_time == Time{4'000'000});
  }
}

TEST_CASE("the objective decides: memory and cost ask for other plans than throughput") {
  std::mt19937 random(6);
  Scenario scenario = random_scenario(random, 8, 4);
  scenario.cluster.device.memory.value *= 16;
  open(scenario, {"stages", "data_parallel", "recompute"});
  const auto best = [&](Objective objective) {
    return std::get<SearchAnswer>(search(scenario, {.objective = objective, .top = 1, .gap = 0})).plans.front();
  };
  const Found fast = best(Objective::Throughput), cheap = best(Objective::Cost), small = best(Objective::Memory);
  CHECK(small.peak < fast.peak);
  CHECK(cheap.plan.devices() == 1);  // nothing is lost on one device
  CHECK(fast.report.samples_per_s > cheap.report.samples_per_s);
}
