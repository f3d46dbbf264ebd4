#include "core/cost/profile.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "core/cost/cost_model.hpp"
#include "core/model/layer_builder.hpp"

using namespace pipewright;

namespace {

Work linear_layer(std::int64_t in, std::int64_t out, bool first) {
  LayerBuilder b;
  return b.finish({b.linear(b.input({in}, !first), {.features = out})});
}

// Two linear layers 4 -> 4 and 4 -> 2 on two cores, one each; 16 B and 8 B per sample.
struct TwoLayers {
  TwoLayers() {
    Model& model = scenario.model;
    model.name = "two";
    model.works = {linear_layer(4, 4, true), linear_layer(4, 2, false)};
    for (int i = 0; i < 2; ++i) {
      Layer layer;
      layer.name = "l" + std::to_string(i), layer.work = i;
      if (i > 0) layer.inputs = {i - 1};
      model.layers.push_back(layer);
    }
    model.input_amount = {.values = 4};
    settle(model, Bytes{4}, {});
    scenario.cluster.devices_per_node = 2;
    scenario.cluster.device.memory = Bytes{1 << 30};
    scenario.cost = CostSourceKind::Profile;
    profile.name = "here";
    profile.layers = {
        {describe(*model.works[0].program.get()), 3, Time{100}, Time{0}, Time{50}, 0.1, 10},
        {describe(*model.works[1].program.get()), 3, Time{200}, Time{70}, Time{30}, 0.1, 10},
    };
    std::sort(profile.layers.begin(), profile.layers.end(),
              [](const LayerTimes& a, const LayerTimes& b) { return a.key < b.key; });
    profile.op_overhead = Time{5};
    profile.send = {10, 0.5};
    profile.first_read = {1, 0.25};
    profile.handoff = Time{40};
    profile.updates = {{Optimizer::Sgd, {7, 2}}};
    plan.schedule = "gpipe", plan.stages = 2, plan.replicas = {1, 1};
    plan.micro_batches = 4, plan.micro_batch_size = plan.last_micro_batch_size = 3, plan.global_batch_size = 12;
    plan.layers = {{0, 1}, {1, 2}}, plan.recompute = {Recompute::None, Recompute::None}, plan.device = {0, 1};
  }
  StepCosts costs() {
    scenario.profile = std::make_shared<const MachineProfile>(profile);
    return step_costs(plan, cost_model(scenario));
  }
  Scenario scenario;
  MachineProfile profile;
  Plan plan;
};

Time of(const StepCosts& costs, int chunk, Kind kind) {
  return costs.duration[static_cast<std::size_t>(chunk) * kKinds + static_cast<std::size_t>(kind)];
}

}  // namespace

TEST_CASE("What a layer computes is told by its operations, shapes and settings") {
  CHECK(describe(*linear_layer(4, 2, false).program.get()) == "linear 4 -> 2 bias");
  CHECK(describe(*linear_layer(4, 2, true).program.get()) == "linear 4! -> 2 bias");
  LayerBuilder b;
  const auto x = b.input({8, 6});
  const Work block = b.finish({b.add(x, b.activation(b.norm(x, {}), Activation::Gelu))});
  CHECK(describe(*block.program.get()) == "layer_norm 8x6 -> 8x6 affine bias; gelu 8x6 -> 8x6; add 8x6 8x6 -> 8x6");
}

TEST_CASE("handing over: ops carry their layers, the overhead, the copies they send and the first reading") {
  const StepCosts costs = TwoLayers().costs();
  // A message of 3 samples x 16 B = 48 B: 10 + 24 ns to send, 1 + 12 ns to read first.
  CHECK(of(costs, 0, Kind::F) == Time{100 + 5 + 34});
  CHECK(of(costs, 1, Kind::F) == Time{200 + 5 + 13});
  CHECK(of(costs, 1, Kind::BW) == Time{100 + 5 + 34});
  CHECK(of(costs, 0, Kind::BW) == Time{50 + 5 + 13});
  CHECK(of(costs, 0, Kind::R) == Time{100 + 5});
  CHECK(of(costs, 1, Kind::W) == Time{30 + 5});
  CHECK(of(costs, 0, Kind::Update) == Time{7 + 2 * 20});
  for (const Message& message : costs.messages)
    CHECK(message.latency == Time{40});
}

TEST_CASE("A layer or a size that was not measured is named, with the sizes that were and a way out") {
  TwoLayers two;
  two.plan.micro_batch_size = two.plan.last_micro_batch_size = 2;
  CHECK_THROWS_WITH_AS(two.costs(), doctest::Contains("micro-batches of 2 samples (measured: 3)"), InputError);
  CHECK_THROWS_WITH_AS(two.costs(), doctest::Contains("pipewright calibrate"), InputError);
}

TEST_CASE("A size between two that were measured lies on the line through them, and only there") {
  TwoLayers two;
  const auto measured = two.profile.layers;
  for (LayerTimes larger : measured) {
    larger.samples = 7;
    larger.forward = larger.forward + Time{80}, larger.weight_gradient = larger.weight_gradient + Time{10};
    two.profile.layers.push_back(larger);
  }
  std::sort(two.profile.layers.begin(), two.profile.layers.end(), [](const LayerTimes& a, const LayerTimes& b) {
    return std::pair(a.key, a.samples) < std::pair(b.key, b.samples);
  });
  const auto at = [&](std::int64_t samples) {
    two.plan.micro_batch_size = two.plan.last_micro_batch_size = samples;
    return two.costs();
  };
  CHECK(of(at(3), 0, Kind::R) == Time{100 + 5});
  CHECK(of(at(5), 0, Kind::R) == Time{140 + 5});
  CHECK(of(at(5), 1, Kind::W) == Time{35 + 5});
  CHECK(of(at(7), 0, Kind::R) == Time{180 + 5});
  CHECK_THROWS_WITH_AS(at(8), doctest::Contains("(measured: 3, 7)"), InputError);
  CHECK_THROWS_WITH_AS(at(2), doctest::Contains("(measured: 3, 7)"), InputError);
}
