#include "tests/support/two_classes.hpp"

namespace pipewright::tests {

Scenario on_two_classes(std::mt19937& random, int layers) {
  Scenario scenario;
  for (int i = 0; i < layers; ++i) {
    Layer layer;
    layer.name = "layer";
    layer.forward = Time{1'000'000 * static_cast<std::int64_t>(1 + random() % 4)};
    layer.backward = Time{2 * layer.forward->value};
    layer.activation = Bytes{static_cast<std::int64_t>(random() % 2'000'000)};
    layer.parameters = static_cast<std::int64_t>(random() % 500'000);
    if (i > 0) layer.inputs = {static_cast<LayerId>(i - 1)};
    scenario.model.layers.push_back(layer);
  }
  Cluster& cluster = scenario.cluster;
  cluster.place = {"s.yaml", 3, 1};
  cluster.nodes = 2, cluster.devices_per_node = 2;
  cluster.device.name = "new", cluster.device.memory = Bytes{32'000'000};
  cluster.links = {.kind = LinkKind::Pcie, .bandwidth = Bandwidth{10e9}};
  cluster.network = Network{};
  cluster.network->bandwidth = Bandwidth{5e9};
  DeviceClass old;
  old.name = "spare", old.nodes = 1, old.speed = 0.5;
  old.device.name = "old", old.device.memory = Bytes{16'000'000};
  cluster.others = {old};
  cluster.nodes += old.nodes;
  scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  scenario.training.micro_batches = Placed<std::int64_t>{16, {}};
  scenario.plan.schedule.value = "pipedream";
  scenario.plan.place = {"s.yaml", 9, 1};
  return scenario;
}

Scenario by_suffix_dp(Scenario scenario) {
  scenario.plan.partition.value = SuffixDp{};
  for (const std::string_view key : kSetByWholePlan)
    scenario.plan.open[std::string(key)] = {};
  return scenario;
}

}  // namespace pipewright::tests
