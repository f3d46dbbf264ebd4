// Nodes of several device classes: who is where, what a stage costs and holds on its class.
#include <doctest/doctest.h>

#include "core/answers/idle_devices.hpp"
#include "core/cost/cost_model.hpp"
#include "core/cost/memory_model.hpp"
#include "core/plan/plan.hpp"

using namespace pipewright::tests;

namespace {

// Two nodes of two "new" devices, then one node of two "old" ones; two layers of 90 ns forward, 180 ns backward.
Scenario new_and_old() {
  Scenario scenario;
  for (int i = 0; i < 2; ++i) {
    Layer layer;
    layer.name = "layer";
    layer.forward = Time{90}, layer.backward = Time{180};
    layer.flops = Flops{1e6};
    layer.activation = Bytes{8};
    layer.parameters = 1000;
    if (i > 0) layer.inputs = {0};
    scenario.model.layers.push_back(layer);
  }
  Cluster& cluster = scenario.cluster;
  cluster.nodes = 3, cluster.devices_per_node = 2;
  cluster.device.name = "new", cluster.device.memory = Bytes{1'000'000}, cluster.device.reserve = Bytes{7};
  cluster.network = Network{};
  cluster.network->ideal = true;
  DeviceClass old;
  old.name = "spare", old.nodes = 1, old.speed = 0.6, old.place = {"s.yaml", 8, 5};
  old.device.name = "old", old.device.memory = Bytes{500'000}, old.device.reserve = Bytes{3};
  old.device.launch_overhead = Time{10};
  cluster.others = {old};
  return scenario;
}

Plan plan_on(std::vector<DeviceId> devices) {
  Plan plan;
  plan.schedule = "1f1b";
  plan.stages = 2;
  plan.replicas = {1, static_cast<int>(devices.size()) - 1};
  plan.micro_batches = 4, plan.global_batch_size = 4;
  plan.layers = {{0, 1}, {1, 2}};
  plan.recompute = {Recompute::None, Recompute::None};
  plan.device = std::move(devices);
  return plan;
}

Time duration(const StepCosts& costs, VirtualStageId chunk, Kind kind) {
  return costs.duration[static_cast<std::size_t>(chunk) * kKinds + static_cast<std::size_t>(kind)];
}

}  // namespace

TEST_CASE("Devices are numbered class by class") {
  const Cluster cluster = new_and_old().cluster;
  CHECK(cluster.nodes_of(0) == 2);
  CHECK(cluster.nodes_of(1) == 1);
  CHECK(cluster.first_node_of(1) == 2);
  CHECK(cluster.class_of(3) == 0);
  CHECK(cluster.class_of(4) == 1);
  CHECK(cluster.device_of(1).name == "old");
  CHECK(cluster.devices_in_words() == "4 x new + 2 x old");
  CHECK(devices_in_words(plan_on({0, 4, 5}), cluster) == "1 x new + 2 x old");
}

TEST_CASE("A stated time is over the speed of the class that a stage lies on") {
  const Scenario scenario = new_and_old();
  const CostModel cost(scenario);
  const StepCosts costs = step_costs(plan_on({0, 4}), cost);
  CHECK(duration(costs, 0, Kind::F) == Time{90});
  CHECK(duration(costs, 0, Kind::BW) == Time{180});
  CHECK(duration(costs, 1, Kind::F) == Time{160});   // 90 / 0.6, and the old device's launch of 10 ns
  CHECK(duration(costs, 1, Kind::BW) == Time{310});  // 180 / 0.6 + 10
  const StepCosts turned = step_costs(plan_on({5, 3}), cost);
  CHECK(duration(turned, 0, Kind::F) == Time{160});
  CHECK(duration(turned, 1, Kind::F) == Time{90});
}

TEST_CASE("Without a speed stated times of a class are refused; a roofline needs none") {
  Scenario scenario = new_and_old();
  scenario.cluster.others.front().speed.reset();
  CHECK_THROWS_WITH_AS(CostModel{scenario},
                       "s.yaml:8:5: cluster.other_nodes.spare.speed is missing: stated layer times are those of new; "
                       "write e.g. speed: 0.5 where old takes twice as long, or use cost: roofline",
                       InputError);
  scenario.cost = CostSourceKind::Roofline;
  for (Layer& layer : scenario.model.layers)
    layer.forward.reset(), layer.backward.reset();
  each_device(scenario.cluster, [](Device& device) {
    device.peak[Precision::Fp32] = FlopRate{device.name == "new" ? 1e12 : 0.25e12};
    device.memory_bandwidth = Bandwidth{1e15};
  });
  const CostModel cost(scenario);
  const StepCosts costs = step_costs(plan_on({0, 4}), cost);
  CHECK(duration(costs, 0, Kind::F) == Time{1'000});  // 1 MFLOP at 1 TFLOP/s
  CHECK(duration(costs, 1, Kind::F) == Time{4'010});  // at a quarter of it, and the launch
}

TEST_CASE("A stage needs room on the devices of its class, beside their reserve") {
  const Scenario scenario = new_and_old();
  const CostModel cost(scenario);
  const MemoryModel memory = memory_model(plan_on({0, 4}), cost);
  CHECK(memory.room(0).capacity == Bytes{1'000'000});
  CHECK(memory.room(1).capacity == Bytes{500'000});
  CHECK(memory.room(1).reserve == Bytes{3});
  CHECK(need(memory, {}, 1).capacity == Bytes{500'000});
}

TEST_CASE("devices without work are counted by class, and a class that no stage lies on is named") {
  const Scenario scenario = new_and_old();  // four devices "new", two "old"
  CHECK(idle_devices(plan_on({0, 1, 2, 3, 4, 5}), scenario.cluster).count == 0);
  CHECK(idle_devices_in_words(plan_on({0, 1, 2, 3, 4, 5}), scenario.cluster).empty());
  CHECK(idle_devices(plan_on({0, 4}), scenario.cluster).count == 4);
  CHECK(idle_devices_in_words(plan_on({0, 4}), scenario.cluster) ==
        "4 of 6 devices have nothing to do: 3 of 4 new, 1 of 2 old");
  CHECK(unused_classes(plan_on({0, 4}), scenario.cluster).empty());
  Plan groups = plan_on({0});
  groups.tensor_parallel = 4;
  CHECK(idle_devices_in_words(groups, scenario.cluster) == "2 of 6 devices have nothing to do: all 2 old");
  CHECK(unused_classes(groups, scenario.cluster) == std::vector<std::string>{"old"});
  Cluster one = scenario.cluster;
  one.others.clear(), one.nodes = 1;
  CHECK(idle_devices_in_words(plan_on({0}), one) == "1 of 2 devices has nothing to do");
  CHECK(unused_classes(plan_on({}), one).empty());
}

TEST_CASE("what would use all devices: the nearest batch, and the nearest number of nodes") {
  Cluster cluster;
  cluster.nodes = 3, cluster.devices_per_node = 4, cluster.network = Network{};
  Plan plan;
  plan.stages = 4, plan.replicas = {1, 1, 1, 1}, plan.data_parallel = 2;
  plan.micro_batch_size = 1, plan.micro_batches = 4, plan.global_batch_size = 8, plan.schedule = "1f1b";
  plan.device = {0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(nearest_full_use(plan, cluster).batch == 9);
  CHECK(nearest_full_use(plan, cluster).nodes == 2);
  CHECK(idle_devices_in_words(plan, cluster) ==
        "4 of 12 devices have nothing to do; the same pipeline uses all with a global batch of 9, or on 2 nodes");
  plan.facts.groups_of_stages = true;  // four micro-batches at a time
  CHECK(nearest_full_use(plan, cluster).batch == 12);
  CHECK(nearest_full_use(plan, cluster).nodes == 2);
  plan.global_batch_size = 12;  // three copies would do, and none is asked for
  CHECK_FALSE(nearest_full_use(plan, cluster).batch);
  CHECK_FALSE(nearest_full_use(plan, cluster).nodes);
  cluster.network.reset();
  plan.global_batch_size = 8;
  CHECK(nearest_full_use(plan, cluster).nodes == 1);
  cluster.nodes = 1, cluster.devices_per_node = 6;  // no copies fill six devices
  CHECK_FALSE(nearest_full_use(plan, cluster).batch);
}

TEST_CASE("The workers of a stage lie on devices of one class") {
  const Scenario scenario = new_and_old();
  CHECK_NOTHROW(validate(plan_on({1, 4, 5}), scenario.model, scenario.cluster));
  CHECK_THROWS_WITH_AS(validate(plan_on({1, 3, 4}), scenario.model, scenario.cluster),
                       "plan: stage 1 lies on devices 3 (new) and 4 (old), but the workers of a stage, and the devices "
                       "of a worker, must be of one class",
                       InputError);
  Plan groups = plan_on({0, 3});
  groups.tensor_parallel = 2;
  CHECK(mixed_classes(groups, scenario.cluster).starts_with("stage 1 lies on devices 3 (new) and 4 (old)"));
}
