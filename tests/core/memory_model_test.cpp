// What a chunk of a plan weighs: parameters by precision and optimizer, and what one micro-batch leaves behind.
#include "core/cost/memory_model.hpp"

#include <doctest/doctest.h>

#include "sim/schedules/table.hpp"

namespace pipewright::tests {
namespace {

constexpr Bytes bytes(std::int64_t value) {
  return {value};
}

Layer layer(std::string name, std::int64_t activation, std::vector<LayerId> inputs) {
  Layer it;
  it.name = std::move(name);
  it.forward = Time{10};
  it.backward = Time{20};
  it.activation = {activation};
  it.inputs = std::move(inputs);
  return it;
}

Scenario scenario_of(std::vector<Layer> layers, std::int64_t input) {
  Scenario scenario;
  scenario.model.layers = std::move(layers);
  scenario.model.input = {input};
  scenario.cluster.nodes = 1;
  scenario.cluster.devices_per_node = 8;
  scenario.cluster.device.memory = {1'000'000};
  scenario.cluster.device.reserve = {77};
  return scenario;
}

Plan one_layer_per_stage(const Scenario& scenario, Skips skips) {
  Plan plan;
  plan.schedule = "1f1b";
  plan.stages = static_cast<int>(scenario.model.layers.size());
  for (int k = 0; k < plan.stages; ++k)
    plan.layers.push_back({k, k + 1}), plan.device.push_back(k);
  plan.replicas.assign(static_cast<std::size_t>(plan.stages), 1);
  plan.recompute.assign(static_cast<std::size_t>(plan.stages), Recompute::None);
  plan.skips = skips;
  return plan;
}

std::vector<std::int64_t> boundaries_of(const MemoryModel& memory) {
  std::vector<std::int64_t> boundary;
  for (const ChunkMemory& chunk : memory.chunks)
    boundary.push_back(chunk.boundary[0].value);
  return boundary;
}

// a -> b -> c -> d and a skip from a to d
Scenario skip_scenario() {
  return scenario_of({layer("a", 1000, {}), layer("b", 200, {0}), layer("c", 30, {1}), layer("d", 4, {2, 0})}, 50000);
}

}  // namespace

TEST_CASE("hop by hop, every stage on the way keeps a skip tensor once") {
  const Scenario scenario = skip_scenario();
  const CostModel cost(scenario);
  const MemoryModel memory = memory_model(one_layer_per_stage(scenario, Skips::Hop), cost);
  CHECK(boundaries_of(memory) == std::vector<std::int64_t>{50000, 1000, 1200, 1030});
  for (int v = 0; v < 4; ++v) {
    CHECK(memory.chunks[v].working[0] == scenario.model.layers[v].activation);  // stash: default the output
    CHECK(memory.chunks[v].stash[0] == memory.chunks[v].boundary[0] + memory.chunks[v].working[0]);
  }
  CHECK(memory.reserve == bytes(77));
  CHECK(memory.capacity == bytes(1'000'000));
}

TEST_CASE("sent direct, a skip tensor takes room only where it is used") {
  const Scenario scenario = skip_scenario();
  const CostModel cost(scenario);
  const MemoryModel memory = memory_model(one_layer_per_stage(scenario, Skips::Direct), cost);
  CHECK(boundaries_of(memory) == std::vector<std::int64_t>{50000, 1000, 200, 1030});
}

TEST_CASE("the model's own input enters every stage with a layer that reads it") {
  const Scenario scenario =
      scenario_of({layer("a", 1000, {}), layer("b", 200, {0}), layer("c", 30, {}), layer("d", 4, {1, 2})}, 50000);
  const CostModel cost(scenario);
  CHECK(boundaries_of(memory_model(one_layer_per_stage(scenario, Skips::Hop), cost)) ==
        std::vector<std::int64_t>{50000, 1000, 50200, 230});
  CHECK(boundaries_of(memory_model(one_layer_per_stage(scenario, Skips::Direct), cost)) ==
        std::vector<std::int64_t>{50000, 1000, 50000, 230});
}

// a makes 1000 B and keeps 300: 700 are missing when it is sent; b keeps more than its output, c nothing.
TEST_CASE(
    "of its own outputs a stage lacks what its layers do not stash; a tensor that passes through is not its own") {
  Scenario scenario = skip_scenario();
  scenario.model.layers[0].stash = bytes(300);
  scenario.model.layers[1].stash = bytes(5000);
  scenario.model.layers[2].stash = bytes(0);
  const CostModel cost(scenario);
  const auto output = [&](Skips skips, int from, int to) {
    const ChunkOutput found = memory_model(one_layer_per_stage(scenario, skips), cost).outputs.at({from, to});
    return std::pair(found.produced[0].value, found.unstashed[0].value);
  };
  CHECK(output(Skips::Hop, 0, 1) == std::pair<std::int64_t, std::int64_t>{1000, 700});
  CHECK(output(Skips::Hop, 1, 2) == std::pair<std::int64_t, std::int64_t>{200, 0});
  CHECK(output(Skips::Hop, 2, 3) == std::pair<std::int64_t, std::int64_t>{30, 30});
  CHECK(output(Skips::Direct, 0, 1) == std::pair<std::int64_t, std::int64_t>{1000, 700});
  CHECK(output(Skips::Direct, 0, 3) == std::pair<std::int64_t, std::int64_t>{1000, 700});
  CHECK(output(Skips::Direct, 2, 3) == std::pair<std::int64_t, std::int64_t>{30, 30});
}

TEST_CASE("a tensor with several users in a chunk counts once") {
  Scenario scenario =
      scenario_of({layer("a", 1000, {}), layer("b", 200, {0}), layer("c", 30, {0, 1}), layer("d", 4, {0, 2})}, 0);
  Plan plan = one_layer_per_stage(scenario, Skips::Hop);
  plan.stages = 2;
  plan.layers = {{0, 1}, {1, 4}};
  plan.replicas = {1, 1};
  plan.device = {0, 1};
  plan.recompute.resize(2);
  const CostModel cost(scenario);
  CHECK(boundaries_of(memory_model(plan, cost)) == std::vector<std::int64_t>{0, 1000});
}

TEST_CASE("hop by hop, the boundary of a stage is the bytes over its cut, on random DAGs") {
  std::uint32_t state = 1;
  const auto random = [&](std::uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
  };
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<Layer> layers;
    for (LayerId i = 0; i < 8; ++i) {
      std::vector<LayerId> inputs;
      for (LayerId j = 0; j < i; ++j)
        if (random(3) == 0) inputs.push_back(j);
      layers.push_back(layer("layer " + std::to_string(i), 1 + random(1000), inputs));
    }
    const Scenario scenario = scenario_of(layers, 0);
    const CostModel cost(scenario);
    const std::vector<std::int64_t> boundary =
        boundaries_of(memory_model(one_layer_per_stage(scenario, Skips::Hop), cost));
    const std::vector<Bytes> over = bytes_over_cuts(scenario.model);
    for (std::size_t k = 0; k < boundary.size(); ++k)
      CHECK(boundary[k] == over[k].value);
  }
}

TEST_CASE("activations scale with the micro-batch, parameters do not") {
  Scenario scenario = skip_scenario();
  scenario.model.batch = 10;
  scenario.model.layers[1].stash = bytes(600);
  scenario.model.layers[1].parameters = 100;
  Plan plan = one_layer_per_stage(scenario, Skips::Hop);
  plan.micro_batches = 3;
  plan.micro_batch_size = 5;
  plan.last_micro_batch_size = 2;
  const CostModel cost(scenario);
  const ChunkMemory chunk = memory_model(plan, cost).chunks[1];
  CHECK(chunk.boundary[0] == bytes(500));  // 1000 B for 10 samples
  CHECK(chunk.boundary[1] == bytes(200));
  CHECK(chunk.working[0] == bytes(300));
  CHECK(chunk.working[1] == bytes(120));
  CHECK(chunk.weights == bytes(400));  // fp32
}

// [GPipe19] Table 1: the Transformer-3 of 282.2 M parameters takes 12 B each (fp32 weight, gradient, RMSProp state),
// 3.15 GiB (printed under activations there; the two cells are exchanged).
TEST_CASE("fp32 with RMSProp takes 12 bytes per parameter") {
  Scenario scenario = scenario_of({layer("all", 0, {})}, 0);
  scenario.model.layers[0].parameters = 282'182'912;
  scenario.training.optimizer = Optimizer::RmsProp;
  const CostModel cost(scenario);
  const ChunkMemory chunk = memory_model(one_layer_per_stage(scenario, Skips::Hop), cost).chunks[0];
  CHECK(chunk.weights + chunk.gradients + chunk.optimizer == bytes(3'386'194'944));
}

// [GPipe19] section 2.3: with recomputation the activations of a worker fall from O(N L) to O(N + L/K * N/M). With
// layers of a bytes per sample, all equal, that is an equation: N a of boundaries and (L/K) (N/M) a of one micro-batch.
TEST_CASE("GPipe with recomputation holds N boundaries and one micro-batch's L/K layers") {
  const std::int64_t a = 3;
  for (const int K : {1, 2, 4})
    for (const int M : {1, 2, 4, 8}) {
      const std::int64_t N = 16, L = 8;
      std::vector<Layer> layers;
      for (LayerId i = 0; i < L; ++i)
        layers.push_back(
            layer("layer " + std::to_string(i), a, i == 0 ? std::vector<LayerId>{} : std::vector<LayerId>{i - 1}));
      const Scenario scenario = scenario_of(layers, a);
      Plan plan = one_layer_per_stage(scenario, Skips::Hop);
      plan.stages = K;
      plan.layers.clear();
      for (int k = 0; k < K; ++k)
        plan.layers.push_back({static_cast<LayerId>(k * L / K), static_cast<LayerId>((k + 1) * L / K)});
      plan.micro_batches = M;
      plan.micro_batch_size = plan.last_micro_batch_size = N / M;
      ScheduleShape shape{.stages = K, .micro_batches = M};
      shape.recompute.assign(static_cast<std::size_t>(K), true);
      const CostModel cost(scenario);
      const MemoryModel memory = memory_model(plan, cost);
      const Schedule schedule = find_schedule("gpipe")->generate(shape);
      for (int k = 0; k < K; ++k) {
        const MemoryBytes most = peak(memory, schedule, k).bytes;
        CHECK(most.stash + most.recompute == bytes(N * a + L / K * (N / M) * a));
      }
    }
}

TEST_CASE("a plan whose memory passes 2^62 bytes is refused, not wrapped") {
  Scenario scenario = scenario_of({layer("all", std::int64_t{1} << 61, {})}, 0);
  Plan plan = one_layer_per_stage(scenario, Skips::Hop);
  plan.micro_batches = 4;
  const CostModel cost(scenario);
  CHECK_THROWS_AS(memory_model(plan, cost), InputError);
}

// Layers that stash 20 B, outputs of 7 B, an input of 5 B. The last two rebuilt: 20 + 7 + 7 = 34 B, and 13 B once.
TEST_CASE("rebuilt layers keep their input, and the largest of them is there once while a backward runs") {
  std::vector<Layer> layers = {layer("a", 7, {}), layer("b", 7, {0}), layer("c", 7, {1})};
  for (Layer& each : layers)
    each.stash = bytes(20);
  Scenario scenario = scenario_of(layers, 5);
  scenario.cluster.device.reserve = {};
  Plan plan = one_layer_per_stage(scenario, Skips::Hop);
  plan.stages = 1, plan.layers = {{0, 3}}, plan.device = {0}, plan.replicas = {1};
  plan.recompute = {Recompute::Layers}, plan.rebuilt = {1, 2};
  const ChunkMemory chunk = memory_model(plan, CostModel(scenario)).chunks[0];
  CHECK(chunk.stash[0] == bytes(5 + 34));
  CHECK(chunk.working[0] == bytes(34));
  CHECK(chunk.core[0] == bytes(13));
  // gpipe with 3 in flight
  ScheduleShape shape{.stages = 1, .micro_batches = 3};
  const Schedule schedule = find_schedule("gpipe")->generate(shape);
  CHECK(peak(memory_model(plan, CostModel(scenario)), schedule, 0).bytes.activations() == bytes(3 * 39 + 13));
  // What a stash holds too little of is kept with the rebuilt layer: 7 - 3 of a's output.
  scenario.model.layers[0].stash = bytes(3);
  CHECK(memory_model(plan, CostModel(scenario)).chunks[0].working[0] == bytes(3 + 4 + 7 + 7));
  plan.rebuilt = {2};
  CHECK(memory_model(plan, CostModel(scenario)).chunks[0].working[0] == bytes(3 + 20 + 7));
}

}  // namespace pipewright::tests
