#include "planner/partitioners/least_step.hpp"

#include <random>

#include <doctest/doctest.h>

#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright::tests;

namespace {

Scenario random_of_schedule(std::mt19937& random, const std::string& schedule) {
  Scenario scenario = uniform_scenario({.layers = 7, .stages = 3, .micro_batches = 6});
  for (Layer& layer : scenario.model.layers) {
    layer.forward = Time{1000 + static_cast<std::int64_t>(random() % 9000)};
    layer.backward = Time{1000 + static_cast<std::int64_t>(random() % 15000)};
    layer.activation = Bytes{static_cast<std::int64_t>(random() % 4'000'000)};
  }
  scenario.cluster.links.kind = LinkKind::Mesh;
  scenario.cluster.links.bandwidth = Bandwidth{1e12};
  scenario.cluster.links.latency = Time{300};
  scenario.plan.schedule.value = schedule;
  return scenario;
}

std::string step_error(const Scenario& scenario) {
  try {
    step_of(scenario);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("partition: exact is never slower than any cut, as simulate prices it") {
  std::mt19937 random(5);
  for (const char* schedule : {"1f1b", "gpipe", "eager_1f1b"})
    for (int i = 0; i < 6; ++i) {
      Scenario scenario = random_of_schedule(random, schedule);
      if (i % 2 == 1) scenario.plan.recompute.value = {Recompute::Full};
      Time best = kNever;
      for (std::int64_t first = 1; first < 6; ++first)
        for (std::int64_t second = first + 1; second < 7; ++second) {
          scenario.plan.partition.value = CutLayers{{first, second}};
          best = std::min(best, step_of(scenario));
        }
      scenario.plan.partition.value = LeastStep{};
      CHECK(step_of(scenario) == best);
      const CostModel cost(scenario);
      CHECK(find_plan(scenario, cost).cut.starts_with("partition: the least step of all cuts, proven; "));
    }
}

TEST_CASE("equal_layers and block_partition cut as their names say") {
  Scenario scenario = uniform_scenario({.layers = 7, .stages = 3});
  scenario.plan.partition.value = EqualLayers{};
  const CostModel cost(scenario);
  CHECK(find_plan(scenario, cost).layers == std::vector<LayerRange>{{0, 3}, {3, 5}, {5, 7}});
  scenario.plan.partition.value = BlockPartition{};
  CHECK(find_plan(scenario, cost).layers.size() == 3);
}

TEST_CASE("partition: exact says for what it is not") {
  Scenario scenario = uniform_scenario();
  scenario.plan.partition.value = LeastStep{};
  scenario.plan.schedule.value = "pipedream";
  CHECK(step_error(scenario).find("exact is for gpipe, 1f1b and eager_1f1b, not for pipedream") != std::string::npos);
  scenario.plan.schedule.value = "interleaved_1f1b";
  scenario.plan.virtual_stages.value = 2;
  CHECK(step_error(scenario).find("plan.partition: exact is for") != std::string::npos);
}
