#include "core/cost/step_pricer.hpp"

#include <random>

#include <doctest/doctest.h>

#include "planner/find_plan.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright::tests;

namespace {

Time makespan(const std::string& schedule, const StepCosts& costs) {
  return static_order_makespan(find_schedule(schedule)->generate(costs.shape), costs);
}

// Six devices per node and pipelines of 4: some copies lie in one node, others over two, on the same leaf or not.
Scenario uneven_copies(std::mt19937& random) {
  Scenario scenario = uniform_scenario({.layers = 9, .stages = 4, .micro_batches = 8});
  for (Layer& layer : scenario.model.layers) {
    layer.forward = Time{1000 + static_cast<std::int64_t>(random() % 9000)};
    layer.backward = Time{1000 + static_cast<std::int64_t>(random() % 15000)};
    layer.activation = Bytes{static_cast<std::int64_t>(random() % 4'000'000)};
    layer.parameters = static_cast<std::int64_t>(random() % 3'000'000);
  }
  scenario.cluster.devices_per_node = 6, scenario.cluster.nodes = 6;
  scenario.cluster.links.kind = LinkKind::Nvswitch;
  scenario.cluster.links.bandwidth = Bandwidth{1e12}, scenario.cluster.links.latency = Time{300};
  scenario.cluster.network = Network{.bandwidth = Bandwidth{1e11}, .latency = Time{900}, .nodes_per_switch = 2};
  scenario.cluster.network->oversubscription = 4;
  scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  scenario.plan.data_parallel.value = 9;
  return scenario;
}

}  // namespace

TEST_CASE("a step priced with the copies folded is that of all copies") {
  std::mt19937 random(3);
  for (const char* schedule : {"1f1b", "gpipe", "eager_1f1b"})
    for (const PlacementOrder order : {PlacementOrder::Pipeline, PlacementOrder::Data})
      for (int i = 0; i < 4; ++i) {
        Scenario scenario = uneven_copies(random);
        scenario.plan.schedule.value = schedule;
        scenario.plan.placement = order;
        scenario.training.zero = i % 2;
        if (i > 1) scenario.plan.gradient_sync = GradientSync::Blocking;
        const CostModel cost(scenario);
        Plan plan = find_plan(scenario, cost);
        StepPricer pricer(plan, cost);
        for (const std::vector<LayerRange>& layers :
             {std::vector<LayerRange>{{0, 2}, {2, 4}, {4, 7}, {7, 9}}, {{0, 1}, {1, 2}, {2, 8}, {8, 9}}}) {
          plan.layers = layers;
          plan.recompute = {Recompute::Full, Recompute::None, Recompute::Full, Recompute::None};
          const StepCosts folded = pricer.costs(plan.layers, plan.recompute), whole = step_costs(plan, cost);
          CHECK(folded.shape.data_parallel < whole.shape.data_parallel);
          CHECK(makespan(schedule, folded) == makespan(schedule, whole));
          const StepCosts in_time = step_costs(plan, cost, fold_copies(plan, cost, Alike::InTime));
          CHECK(in_time.shape.data_parallel == folded.shape.data_parallel);
          CHECK(makespan(schedule, in_time) == makespan(schedule, whole));
          CHECK(in_time.links.empty());
        }
      }
}

TEST_CASE("what is left after the last backward: the last bucket's all-reduce and the update") {
  std::mt19937 random(3);
  Scenario scenario = uneven_copies(random);
  for (Layer& layer : scenario.model.layers)
    layer.parameters = 500 + static_cast<std::int64_t>(random() % 500);
  scenario.plan.bucket = Bytes{1000};  // a bucket per layer
  const CostModel cost(scenario);
  const Plan plan = find_plan(scenario, cost);
  StepPricer pricer(plan, cost);
  const StepCosts costs = step_costs(plan, cost);
  CHECK(pricer.tail(0, plan.layers[0]) == costs.collectives[0].back().time);  // stated times: updates are not priced
  scenario.plan.gradient_sync = GradientSync::Blocking;
  const CostModel blocking(scenario);
  const Plan same = find_plan(scenario, blocking);
  Time all;
  for (const Collective& bucket : costs.collectives[0])
    all += bucket.time;
  CHECK(StepPricer(same, blocking).tail(0, same.layers[0]) == all);
}
