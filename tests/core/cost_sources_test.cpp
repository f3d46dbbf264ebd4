#include <doctest/doctest.h>

#include "core/cost/cost_model.hpp"
#include "tests/core/passes.hpp"
#include "tests/support/microseconds.hpp"

using namespace pipewright::tests;

namespace {

// One layer for 8 samples: 2 GFLOP, 30 MB moved (10 in, 12 out, 8 of parameters).
Scenario one_layer() {
  Scenario scenario;
  scenario.cost = CostSourceKind::Roofline;
  scenario.model.batch = 8;
  scenario.model.input = Bytes{10'000'000};
  Layer layer;
  layer.name = "dense";
  layer.place = {"s.yaml", 9, 5};
  layer.activation = Bytes{12'000'000};
  layer.parameters = 2'000'000;
  layer.flops = Flops{2e9};
  scenario.model.layers = {layer};
  Device& device = scenario.cluster.device;
  device.name = "X100";
  device.place = {"x100.yaml", 2, 1};
  device.peak[Precision::Fp32] = FlopRate{10e12};
  device.memory_bandwidth = Bandwidth{100e9};
  device.compute_efficiency = 0.5;
  device.memory_efficiency = 0.6;
  device.launch_overhead = us(5);
  return scenario;
}

Layer stated() {
  Layer layer;
  layer.name = "conv";
  layer.place = {"m.yaml", 4, 3};
  layer.forward = us(10);
  layer.parameters = 1;
  return layer;
}

Scenario explicit_with(const Layer& layer, std::int64_t batch = 1) {
  Scenario scenario;
  scenario.model.batch = batch;
  scenario.model.layers = {layer};
  return scenario;
}

}  // namespace

TEST_CASE("Roofline: a layer takes the longer of its arithmetic and its memory traffic, and a launch") {
  const auto passes = price(one_layer(), 8);
  CHECK(passes.forward == us(500 + 5));  // 30 MB at 60 GB/s; its arithmetic takes 400 us
  CHECK(passes.backward_input == us(500 + 5));
  CHECK(passes.backward_weight == us(500 + 5));
}

TEST_CASE("Roofline: FLOPs and tensors scale with the micro-batch, parameters do not") {
  // 8 GFLOP take 1600 us; 40 + 48 + 8 = 96 MB take 1600 us; a bit more arithmetic decides.
  Scenario scenario = one_layer();
  CHECK(price(scenario, 32).forward == us(1600 + 5));
  scenario.model.layers[0].flops = Flops{2.5e9};
  CHECK(price(scenario, 32).forward == us(2000 + 5));
  // One sample: 1.25 + 1.5 + 8 = 10.75 MB take 179 166.67 ns.
  CHECK(price(scenario, 1).forward == Time{179'167 + 5'000});
}

TEST_CASE("Roofline: one Transformer-48 layer on a TPU v3 core takes 1.815759 ms") {
  Scenario scenario = one_layer();
  scenario.model.batch = 1;
  Layer& layer = scenario.model.layers[0];
  layer.flops = Flops{111'669'149'696};
  layer.activation = scenario.model.input = Bytes{8'388'608};
  layer.parameters = 50'358'272;
  scenario.cluster.device.peak[Precision::Fp32] = FlopRate{123e12};  // half of it: 61.5 TFLOP/s
  scenario.cluster.device.memory_bandwidth = Bandwidth{900e9};
  scenario.cluster.device.memory_efficiency = 0.5;
  scenario.cluster.device.launch_overhead = Time{0};
  CHECK(price(scenario, 1).forward == Time{1'815'759});
}

TEST_CASE("Roofline: without parameters all of the backward is input gradient, twice the FLOPs and the bytes once") {
  Scenario scenario = one_layer();
  scenario.model.layers[0].parameters = 0;
  auto passes = price(scenario, 8);
  CHECK(passes.forward == us(400 + 5));  // 22 MB take 367 us, now the arithmetic decides: 2 GFLOP at 5 TFLOP/s
  CHECK(passes.backward_input == us(800 + 5));
  CHECK(passes.backward_weight == us(0));
  scenario.model.layers[0].flops = Flops{0.5e9};  // a pooling layer: 100 us of arithmetic forward, 200 us backward
  scenario.model.layers[0].activation = Bytes{14'000'000};
  passes = price(scenario, 8);
  CHECK(passes.forward == us(400 + 5));  // 24 MB at 60 GB/s
  CHECK(passes.backward_input == us(400 + 5));
}

TEST_CASE("Roofline: at full efficiency arithmetic fills the device, whether a layer has parameters or not") {
  // 3 x the forward's FLOPs, which MFU counts as useful, at the peak rate: MFU is 1, not more.
  Scenario scenario = one_layer();
  Device& device = scenario.cluster.device;
  device.compute_efficiency = 1;
  device.launch_overhead = Time{0};
  device.memory_bandwidth = Bandwidth{1e15};
  for (const std::int64_t parameters : {0, 1'000}) {
    scenario.model.layers[0].parameters = parameters;
    const auto passes = price(scenario, 8);
    CHECK(passes.forward + passes.backward_input + passes.backward_weight == us(600));  // 6 GFLOP at 10 TFLOP/s
  }
}

TEST_CASE("Roofline: the inputs of a layer are the outputs of its producers") {
  Scenario scenario = one_layer();
  Layer sum = scenario.model.layers[0];
  sum.inputs = {0, 1};
  sum.flops = Flops{0};
  sum.parameters = 0;
  scenario.model.layers.push_back(scenario.model.layers[0]);
  scenario.model.layers.push_back(sum);
  // 12 + 12 in, 12 out at 60 GB/s.
  CHECK(CostModel(scenario).source().price(scenario.model, 2, 8).forward == us(600 + 5));
}

TEST_CASE("Roofline: half precision halves the bytes of the parameters") {
  Scenario scenario = one_layer();
  scenario.training.precision = Precision::Bf16;
  scenario.cluster.device.peak[Precision::Bf16] = FlopRate{1e15};
  // 10 + 12 + 4 = 26 MB at 60 GB/s: 433 333.33 ns.
  CHECK(price(scenario, 8).forward == Time{433'333 + 5'000});
}

TEST_CASE("Roofline: stated times win, pass by pass, and the report says how many") {
  Scenario scenario = one_layer();
  scenario.model.layers[0].forward = us(80);
  auto passes = price(scenario, 4);
  CHECK(passes.forward == us(40));  // measured: no launch is added
  CHECK(passes.backward_input > us(40));
  scenario.model.layers[0].backward = us(200);
  passes = price(scenario, 4);
  CHECK(passes.backward_input == us(50));
  CHECK(passes.backward_weight == us(50));
  CHECK(CostModel(scenario).source().op_overhead() == Time{0});
  CHECK(CostModel(scenario).source().provenance() ==
        "layer times: roofline from FLOPs and bytes on X100 (fp32, 50 % of the peak FLOP rate, 60 % of the memory "
        "bandwidth); 1 of 1 layers use their stated times");
}

TEST_CASE("Roofline: a device without any efficiency is warned of, where a layer is priced by it") {
  const auto caution = [](const Scenario& scenario) { return CostModel(scenario).source().caution(scenario.model, 4); };
  Scenario scenario = one_layer();
  CHECK(caution(scenario).empty());  // states 50 %
  each_device(scenario.cluster, [](Device& device) { device.compute_efficiency = 1; });
  CHECK(caution(scenario).find("device X100 states no efficiency, so layers are priced at 100 % of its peaks") == 0);
  Scenario by_kind = scenario;
  each_device(by_kind.cluster, [](Device& device) {
    device.efficiency[static_cast<std::size_t>(OperatorKind::Memory)].emplace().curve = {{0, 0.8}};
  });
  CHECK(caution(by_kind).empty());
  scenario.model.layers[0].forward = us(80), scenario.model.layers[0].backward = us(200);
  CHECK(caution(scenario).empty());  // nothing is priced by it
}

TEST_CASE("Roofline: the optimizer step moves every parameter's bytes once in and out") {
  Scenario scenario = one_layer();
  scenario.training.optimizer = Optimizer::RmsProp;
  // Weight, gradient and state read, weight and state written: 20 B for 3 M parameters at 60 GB/s are 1 ms.
  CHECK(CostModel(scenario).source().update(3'000'000) == us(1'000 + 5));
  CHECK(CostModel(scenario).source().update(0) == Time{0});
}

TEST_CASE("Roofline: a missing figure is refused with the device's or the layer's place") {
  Scenario scenario = one_layer();
  scenario.model.layers[0].flops.reset();
  CHECK_THROWS_WITH_AS(price(scenario, 8),
                       "s.yaml:9:5: layer \"dense\" has no flops; give `flops:`, or `forward:` and `backward:` times",
                       InputError);
  scenario.cluster.device.memory_bandwidth.reset();
  CHECK_THROWS_WITH_AS(
      CostModel{scenario},
      "x100.yaml:2:1: device \"X100\" has no memory_bandwidth, which `cost: roofline` needs; give e.g. "
      "`memory_bandwidth: 900 GB/s`",
      InputError);
  scenario.training.precision = Precision::Bf16;
  CHECK_THROWS_WITH_AS(
      CostModel{scenario},
      "x100.yaml:2:1: device \"X100\" has no peak.bf16, which `cost: roofline` needs; give e.g. `peak: "
      "{bf16: 15.7 TFLOP/s}`, or another training.precision",
      InputError);
}

TEST_CASE("Explicit: times scale with the micro-batch") {
  Layer layer = stated();
  layer.backward = us(20);
  const auto passes = price(explicit_with(layer, 4), 1);
  CHECK(passes.forward == Time{2'500});
  CHECK(passes.backward_input == Time{2'500});
  CHECK(passes.backward_weight == Time{2'500});
}

TEST_CASE("A backward in one figure splits into halves, the odd nanosecond to the input") {
  Layer layer = stated();
  layer.backward = Time{7};
  CHECK(stated_backward(layer, 1, 1)->weight == Time{3});
  CHECK(stated_backward(layer, 1, 1)->input == Time{4});
  layer.parameters = 0;
  CHECK(stated_backward(layer, 1, 1)->weight == Time{0});
  CHECK(stated_backward(layer, 1, 1)->input == Time{7});
}

TEST_CASE("Stated halves are kept, and one half with the whole gives the other") {
  Layer layer = stated();
  layer.backward_input = us(3);
  layer.backward_weight = us(5);
  CHECK(stated_backward(layer, 1, 1)->input == us(3));
  CHECK(stated_backward(layer, 1, 1)->weight == us(5));
  layer.backward = us(8);
  CHECK(stated_backward(layer, 1, 1)->weight == us(5));
  layer.backward_weight.reset();
  CHECK(stated_backward(layer, 1, 2)->input == Time{1'500});
  CHECK(stated_backward(layer, 1, 2)->weight == Time{2'500});
}

TEST_CASE("Halves that contradict the whole are refused at the layer") {
  Layer layer = stated();
  layer.backward_input = us(3);
  CHECK_THROWS_WITH_AS(
      stated_backward(layer, 1, 1),
      "m.yaml:4:3: layer \"conv\": has only half of its backward; give `backward_weight:` or the whole "
      "`backward:`",
      InputError);
  layer.backward = us(2);
  CHECK_THROWS_AS(stated_backward(layer, 1, 1), InputError);
  layer.backward = us(9);
  layer.backward_weight = us(5);
  CHECK_THROWS_WITH_AS(
      stated_backward(layer, 1, 1),
      "m.yaml:4:3: layer \"conv\": backward_input + backward_weight differ from backward; leave out one "
      "of the three",
      InputError);
}

TEST_CASE("Explicit: a layer without times is refused with a way out") {
  Layer layer = stated();
  CHECK_THROWS_WITH_AS(
      price(explicit_with(layer), 1),
      "m.yaml:4:3: layer \"conv\" has no backward time; give `forward:` and `backward:`, or set `cost: "
      "roofline` and give flops",
      InputError);
  layer.backward = us(20);
  layer.forward.reset();
  CHECK_THROWS_WITH_AS(price(explicit_with(layer), 1),
                       "m.yaml:4:3: layer \"conv\" has no forward time; give `forward:` and `backward:`, or set `cost: "
                       "roofline` and give flops",
                       InputError);
}

TEST_CASE("Explicit: launches are added per op, the optimizer step is free and said to be") {
  Layer layer = stated();
  layer.backward = us(20);
  Scenario scenario = explicit_with(layer, 128);
  scenario.cluster.device.launch_overhead = us(4);
  const CostModel cost(scenario);
  CHECK(cost.source().op_overhead() == us(4));
  CHECK(cost.source().update(1'000'000) == Time{0});
  CHECK(cost.source().provenance() ==
        "layer times: as stated for 128 samples, scaled to the micro-batch; each op adds 4000 ns of launch overhead; "
        "optimizer time is not included");
}

TEST_CASE("Uniform: every layer costs the same, whatever its size") {
  Layer layer;
  layer.parameters = 7;
  Scenario scenario = explicit_with(layer, 128);
  scenario.cost = CostSourceKind::Uniform;
  scenario.uniform_forward = us(1);
  scenario.uniform_backward = us(2);
  for (const std::int64_t samples : {1, 128, 1'000}) {
    const LayerCosts costs = CostModel(scenario).layers(samples);
    CHECK(costs.forward[0] == us(1));
    CHECK(costs.backward[0] == us(2));
    CHECK(costs.backward_weight[0] == us(1));
  }
}

TEST_CASE("Uniform: every op pays the device's launch, and the report says so") {
  Scenario scenario = explicit_with(stated());
  scenario.cost = CostSourceKind::Uniform;
  scenario.uniform_forward = us(1);
  scenario.uniform_backward = us(2);
  CHECK(CostModel(scenario).source().op_overhead() == Time{0});
  scenario.cluster.device.launch_overhead = us(4);
  const CostModel cost(scenario);
  CHECK(cost.source().op_overhead() == us(4));
  CHECK(cost.source().provenance() ==
        "layer times: uniform, forward 1000 ns and backward 2000 ns per layer and micro-batch; each op adds 4000 ns of "
        "launch overhead; optimizer time is not included");
}

TEST_CASE(
    "The backward of every layer is the sum of its gradients, to the nanosecond, and the stash defaults to the "
    "output") {
  Scenario scenario = explicit_with(stated(), 3);
  scenario.model.layers[0].backward_input = Time{4};
  scenario.model.layers[0].backward_weight = Time{4};
  scenario.model.layers[0].activation = Bytes{100};
  scenario.model.layers.push_back(scenario.model.layers[0]);
  scenario.model.layers[1].stash = Bytes{700};
  const LayerCosts costs = CostModel(scenario).layers(1);
  CHECK(costs.backward_input[0] == Time{1});  // 1.33
  CHECK(costs.backward_weight[0] == Time{1});
  CHECK(costs.backward[0] == Time{2});  // although 8/3 rounds to 3
  CHECK(costs.activation[0] == Bytes{33});
  CHECK(costs.stash[0] == Bytes{33});
  CHECK(costs.stash[1] == Bytes{233});
}

TEST_CASE("The table names every cost source once") {
  REQUIRE(cost_sources().size() == 4);
  CHECK(cost_sources()[0].name == "explicit");
  CHECK(cost_sources()[1].name == "roofline");
  CHECK(cost_sources()[2].name == "uniform");
  CHECK(cost_sources()[3].name == "profile");
}

TEST_CASE("Bytes per parameter: 12 with fp32 RMSProp, 16 with mixed-precision Adam") {
  const auto total = [](Precision precision, Optimizer optimizer) {
    Training training;
    training.precision = precision, training.optimizer = optimizer;
    return weight_bytes(precision) + gradient_bytes(training) + optimizer_bytes(training);
  };
  CHECK(total(Precision::Fp32, Optimizer::RmsProp) == Bytes{12});
  CHECK(total(Precision::Tf32, Optimizer::Adam) == Bytes{16});
  CHECK(total(Precision::Fp16, Optimizer::Adam) == Bytes{16});
  CHECK(total(Precision::Bf16, Optimizer::Sgd) == Bytes{8});
  CHECK(total(Precision::Fp32, Optimizer::Sgd) == Bytes{8});
  CHECK(total(Precision::Fp32, Optimizer::Momentum) == Bytes{12});
}
