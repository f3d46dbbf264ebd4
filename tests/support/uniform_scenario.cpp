#include "tests/support/uniform_scenario.hpp"

namespace pipewright::tests {

Scenario uniform_scenario(const UniformScenario& shape) {
  const auto line = [](int number) { return Place{"s.yaml", number, 3}; };
  Scenario scenario;
  scenario.name = "uniform";
  scenario.file = "s.yaml";
  scenario.model.name = "equal layers";
  for (LayerId i = 0; i < shape.layers; ++i) {
    Layer layer;
    layer.name = "layer" + std::to_string(i);
    layer.forward = shape.forward;
    layer.backward = shape.backward;
    layer.activation = Bytes{1 << 20};
    layer.parameters = 1000;
    if (i > 0) layer.inputs = {i - 1};
    scenario.model.layers.push_back(layer);
  }
  scenario.cluster.name = "ideal";
  scenario.cluster.devices_per_node = shape.devices;
  scenario.cluster.device.name = "roomy";
  scenario.cluster.device.memory = Bytes{std::int64_t{1} << 40};
  scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  scenario.training.micro_batches = Placed<std::int64_t>{shape.micro_batches, line(3)};
  scenario.plan.stages = {shape.stages, line(1)};
  scenario.plan.schedule = {"1f1b", line(2)};
  scenario.plan.replicas.place = line(4);
  scenario.plan.partition.place = line(5);
  scenario.plan.placement_place = line(6);
  scenario.plan.recompute.place = line(7);
  scenario.plan.data_parallel.place = line(8);
  return scenario;
}

}  // namespace pipewright::tests
