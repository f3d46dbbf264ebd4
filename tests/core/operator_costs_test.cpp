// Layers built from operators, priced one operator at a time; tensor parallelism, selective recomputation, ZeRO-1.
#include <doctest/doctest.h>

#include "core/cost/buckets.hpp"
#include "core/cost/cost_model.hpp"
#include "core/model/layer_builder.hpp"
#include "tests/core/passes.hpp"
#include "tests/support/microseconds.hpp"
#include "tests/support/transformer_block.hpp"

using namespace pipewright::tests;

namespace {

constexpr Amount values(double count) {
  Amount amount;
  amount.values = count;
  return amount;
}

// 1 GFLOP per pass and sample on 1 M values and 1 M parameters; then 3 M values moved forward and in the gradient.
Work dense_and_norm() {
  Operator dense;
  dense.kind = OperatorKind::MatrixProduct;
  dense.forward_flops = dense.input_flops = dense.weight_flops = 1e9;
  dense.forward_bytes = dense.input_bytes = dense.weight_bytes = values(1e6);
  dense.parameters = dense.sharded_parameters = 1'000'000;
  dense.divided = true;
  Operator norm;
  norm.forward_bytes = norm.input_bytes = values(3e6);
  Work work;
  work.operators = {dense, norm};
  work.parameters = work.sharded_parameters = 1'000'000;
  work.outputs = {values(1e6)};
  return work;
}

// fp32: 10 TFLOP/s at 50 %, 100 GB/s at 60 %, 5 us per launch. Eight devices behind a switch of 25 GB/s and 1 us.
Scenario of_work(const Work& work, int layers = 1) {
  Scenario scenario;
  scenario.cost = CostSourceKind::Roofline;
  scenario.model.works = {work};
  for (LayerId i = 0; i < layers; ++i) {
    Layer layer;
    layer.name = "layer" + std::to_string(i);
    layer.work = 0;
    layer.parameters = work.parameters;
    if (i > 0) layer.inputs = {i - 1};
    scenario.model.layers.push_back(layer);
  }
  scenario.cluster.devices_per_node = 8;
  scenario.cluster.links.kind = LinkKind::Nvswitch;
  scenario.cluster.links.bandwidth = Bandwidth{25e9};
  scenario.cluster.links.latency = us(1);
  Device& device = scenario.cluster.device;
  device.name = "X100";
  device.peak[Precision::Fp32] = FlopRate{10e12};
  device.memory_bandwidth = Bandwidth{100e9};
  device.compute_efficiency = 0.5;
  device.memory_efficiency = 0.6;
  device.launch_overhead = us(5);
  return scenario;
}

Efficiency share(double value) {
  Efficiency efficiency;
  efficiency.curve = {{1.0, value}};
  return efficiency;
}

Plan plan_of(const Scenario& scenario, std::vector<LayerRange> layers, std::vector<Recompute> recompute) {
  Plan plan;
  plan.schedule = "1f1b";
  plan.stages = static_cast<int>(layers.size());
  plan.layers = std::move(layers);
  plan.recompute = std::move(recompute);
  plan.replicas.assign(plan.layers.size(), 1);
  plan.tensor_parallel = static_cast<int>(scenario.plan.tensor_parallel.value);
  for (int k = 0; k < plan.stages; ++k)
    plan.device.push_back(k * plan.tensor_parallel);
  return plan;
}

// In bf16, 1 TFLOP/s on one multiprocessor.
void price_products_by_shape(Scenario& scenario) {
  Device& device = scenario.cluster.device;
  device.peak[Precision::Bf16] = FlopRate{1e12};
  device.multiprocessors = 1;
  auto& products = device.efficiency[static_cast<std::size_t>(OperatorKind::MatrixProduct)] = share(0.25);
  products->tiles = ProductCurve{.share = 1, .operands = 1};
  scenario.training.precision = Precision::Bf16;
}

}  // namespace

TEST_CASE("a layer takes the sum of its operators, each the longer of arithmetic and bytes, with a launch of its own") {
  const auto passes = price(of_work(dense_and_norm()));
  // dense: 1 GFLOP at 5 TFLOP/s 200 us, 4 + 4 MB at 60 GB/s 133 us; norm: 12 MB at 60 GB/s 200 us.
  CHECK(passes.forward == us(205 + 205));
  CHECK(passes.backward_input == us(205 + 205));
  CHECK(passes.backward_weight == us(205));  // the norm has no parameters: no launch
  CHECK(passes.rebuild == us(0));
  // 8 samples: 1600 us and 96 MB.
  CHECK(price(of_work(dense_and_norm()), 8).forward == us(1605 + 1605));
}

TEST_CASE("the times of a layer's operators are summed before they are rounded") {
  Work work = dense_and_norm();
  work.operators[0].forward_flops = 2'000;  // 0.4 ns
  work.operators[0].forward_bytes = values(1);
  work.operators[0].parameters = 0;
  work.operators[1] = work.operators[0];
  Scenario scenario = of_work(work);
  scenario.cluster.device.launch_overhead = Time{0};
  CHECK(price(scenario).forward == Time{1});  // 0.8 ns
}

TEST_CASE(
    "weights are read by both passes of the input, their gradient is written; of a looked up table only rows count") {
  Work work = dense_and_norm();
  work.operators.pop_back();
  work.operators[0].parameters = 5'000'000;  // 20 MB + 4 MB take 400 us
  Scenario scenario = of_work(work);
  CHECK(price(scenario).forward == us(405));
  CHECK(price(scenario).backward_weight == us(405));
  work.operators[0].gathered_parameters = 5'000'000;
  CHECK(price(of_work(work)).forward == us(205));
  scenario = of_work(dense_and_norm());
  scenario.cluster.device.peak[Precision::Bf16] = FlopRate{1e15};
  scenario.training.precision = Precision::Bf16;
  scenario.training.gradient_precision = Precision::Fp32;
  CHECK(price(scenario).backward_weight == us(100 + 5));  // 2 MB of tensors, 4 MB of fp32 gradients
}

TEST_CASE("each kind of operator has its own efficiency") {
  Scenario scenario = of_work(dense_and_norm());
  scenario.cluster.device.efficiency[static_cast<std::size_t>(OperatorKind::MatrixProduct)] = share(0.25);
  CHECK(price(scenario).forward == us(405 + 205));
  scenario.cluster.device.efficiency[static_cast<std::size_t>(OperatorKind::Convolution)] = share(0.1);
  CHECK(price(scenario).forward == us(405 + 205));
  scenario.cluster.device.efficiency[static_cast<std::size_t>(OperatorKind::Memory)] = share(0.3);
  CHECK(price(scenario).forward == us(405 + 405));
}

// 128 images of 4 x 4, 3 x 3, 128 to 128 channels, one multiprocessor of 1e6 FLOP/us: 150.995 us by minimal filtering
// (tests/core/kernel_curves_test.cpp), here with 7 us of the curve's launch and 5 us of the device's.
TEST_CASE("Convolutions are priced by shape in fp32, and by their share in other precisions") {
  const auto passes = [](std::int64_t groups, Precision precision) {
    LayerBuilder layer;
    const auto x = layer.conv2d(layer.input({128, 4, 4}), {.channels = 128});
    const Work work = layer.finish({layer.conv2d(x, {.channels = 128,
                                                     .kernel_height = 3,
                                                     .kernel_width = 3,
                                                     .padding_height = 1,
                                                     .padding_width = 1,
                                                     .groups = groups})});
    Work only = work;
    only.operators.erase(only.operators.begin());
    Scenario scenario = of_work(only);
    Device& device = scenario.cluster.device;
    device.peak[Precision::Fp32] = device.peak[Precision::Tf32] = FlopRate{1e12};
    device.memory_bandwidth = Bandwidth{1e18}, device.multiprocessors = 1;
    for (const OperatorKind kind : {OperatorKind::Convolution, OperatorKind::GroupedConvolution})
      device.efficiency[static_cast<std::size_t>(kind)] = share(0.25);
    device.efficiency[static_cast<std::size_t>(OperatorKind::Convolution)]->tiles =
        ProductCurve{.share = 1, .launch = 7, .operands = 1};
    scenario.training.precision = precision;
    return price(scenario, 128);
  };
  for (const Time pass : {passes(1, Precision::Fp32).forward, passes(1, Precision::Fp32).backward_input,
                          passes(1, Precision::Fp32).backward_weight})
    CHECK(static_cast<double>(pass.value) == doctest::Approx(162'995).epsilon(1e-5));
  // 2 * 2048 * 128 * 1152 FLOP at 0.25 TFLOP/s; of two groups half of them.
  CHECK(static_cast<double>(passes(1, Precision::Tf32).forward.value) == doctest::Approx(2'415'919 + 5'000));
  CHECK(static_cast<double>(passes(2, Precision::Fp32).forward.value) == doctest::Approx(1'207'960 + 5'000));
}

// 64 x 128 weights: half of the 8 B of each in the sum, at the memory's bandwidth, whether the rows are aligned or not.
TEST_CASE("A gradient of weights that is added to a sum in fp32 takes longer by half of its bytes") {
  const auto passes = [](std::optional<Precision> gradients, std::int64_t features) {
    LayerBuilder layer;
    Scenario scenario = of_work(layer.finish({layer.linear(layer.input({8, 64}), {.features = features})}));
    price_products_by_shape(scenario);
    scenario.cluster.device.memory_bandwidth = Bandwidth{1e9};
    scenario.training.gradient_precision = gradients;
    return price(scenario);
  };
  for (const std::int64_t features : {128, 127}) {
    const auto whole = passes(std::nullopt, features), summed = passes(Precision::Fp32, features);
    CHECK(summed.forward == whole.forward);
    CHECK(summed.backward_input == whole.backward_input);
    CHECK((summed.backward_weight - whole.backward_weight).value ==
          doctest::Approx(static_cast<double>(64 * features * 4)).epsilon(1e-4));
  }
}

// 2 experts of 8 tokens each on one multiprocessor; looped adds 2 * 3 us to the forward of each of two products.
TEST_CASE("Experts in a loop cost more than fused ones, where products are priced by shape") {
  const auto passes = [](ExpertProducts products) {
    LayerBuilder layer;
    const auto x = layer.linear(layer.input({8, 64}), {.features = 64});
    Work work = layer.finish({layer.experts(x, {.experts = 2, .active = 2, .hidden = 64})});
    Scenario scenario = of_work(work);
    price_products_by_shape(scenario);
    scenario.training.expert_products = products;
    return price(scenario);
  };
  const auto fused = passes(ExpertProducts::Fused), looped = passes(ExpertProducts::Looped);
  CHECK((looped.forward - fused.forward).value == doctest::Approx(12'000).epsilon(1e-3));
  CHECK((looped.backward_input - fused.backward_input).value == doctest::Approx(12'000).epsilon(1e-3));
  CHECK((looped.backward_weight - fused.backward_weight).value > 16'000);
}

TEST_CASE("an efficiency curve is interpolated over the logarithm of the work, and flat outside") {
  Efficiency curve;
  curve.curve = {{1e9, 0.2}, {1e11, 0.6}};
  CHECK(curve.at(1e10) == doctest::Approx(0.4));
  CHECK(curve.at(1e9) == 0.2);
  CHECK(curve.at(1) == 0.2);
  CHECK(curve.at(1e11) == 0.6);
  CHECK(curve.at(1e15) == 0.6);
  Scenario scenario = of_work(dense_and_norm());
  scenario.cluster.device.efficiency[static_cast<std::size_t>(OperatorKind::MatrixProduct)] = curve;
  CHECK(price(scenario).forward == us(505 + 205));        // 1 GFLOP at 20 %
  CHECK(price(scenario, 10).forward == us(2505 + 2005));  // 10 GFLOP at 40 %; 120 MB
}

TEST_CASE("tensor parallelism divides the divided operators, sequence parallelism the rest") {
  Scenario scenario = of_work(dense_and_norm());
  scenario.plan.tensor_parallel.value = 4;
  // dense: 0.25 GFLOP 50 us, 4 MB of tensors held whole and 1 MB of weights 83.333 us; norm as before.
  CHECK(price(scenario).forward == Time{83'333 + 5'000 + 205'000});
  scenario.plan.sequence_parallel.value = true;  // 1 + 1 MB take 33.3 us, so the arithmetic decides; norm 3 MB
  CHECK(price(scenario).forward == us(55 + 55));
}

TEST_CASE("what is gathered is neither divided by tensor nor by sequence parallelism") {
  Work work = dense_and_norm();
  work.operators.erase(work.operators.begin());
  work.operators[0].forward_bytes = {.gathered_values = 3e6};
  work.operators[0].forward_flops = 2e9;  // 400 us
  Scenario scenario = of_work(work);
  scenario.plan.tensor_parallel.value = 4;
  scenario.plan.sequence_parallel.value = true;
  CHECK(price(scenario).forward == us(205));  // 0.5 GFLOP take 100 us, 12 MB still 200 us
  scenario.model.works[0].operators[0].gathered = true;
  CHECK(price(scenario).forward == us(405));
}

TEST_CASE("what a fused kernel computes again takes time with the gradient of its input") {
  Work work = dense_and_norm();
  work.operators[0].rebuilt_flops = 0.5e9;
  const auto passes = price(of_work(work));
  CHECK(passes.forward == us(205 + 205));
  CHECK(passes.backward_input == us(305 + 205));  // 1.5 GFLOP at 5 TFLOP/s
  CHECK(passes.backward_weight == us(205));
}

TEST_CASE("a tensor-parallel group's all-reduces are exposed: 2(t-1) steps each, 2(t-1)/t of the bytes") {
  Work work = dense_and_norm();
  work.reduced_forward = values(1e6), work.reductions_forward = 2;
  work.reduced_backward = values(2e6), work.reductions_backward = 1;
  Scenario scenario = of_work(work);
  const auto alone = price(scenario);
  scenario.plan.tensor_parallel.value = 4;
  Scenario silent = scenario;
  silent.model.works[0].reduced_forward = silent.model.works[0].reduced_backward = {};
  silent.model.works[0].reductions_forward = silent.model.works[0].reductions_backward = 0;
  const auto with = price(scenario), without = price(silent);
  CHECK(with.forward - without.forward == us(12 + 240));  // 2 x 6 us; 1.5 x 4 MB at 25 GB/s
  CHECK(with.backward_input - without.backward_input == us(6 + 480));
  CHECK(with.backward_weight == without.backward_weight);
  CHECK(alone.forward == us(410));  // one device reduces nothing
  // Sequence parallelism: reduce-scatter and all-gather move the same bytes.
  scenario.plan.sequence_parallel.value = silent.plan.sequence_parallel.value = true;
  CHECK(price(scenario).forward - price(silent).forward == us(252));
}

TEST_CASE("a group that spans two nodes reduces at the pace of the network") {
  Work work = dense_and_norm();
  work.reduced_forward = values(1e6), work.reductions_forward = 1;
  Scenario scenario = of_work(work);
  scenario.cluster.nodes = 2;
  scenario.cluster.devices_per_node = 2;
  scenario.cluster.network = Network{.bandwidth = Bandwidth{5e9}, .latency = us(3)};
  const auto communication = [&](int t) {
    scenario.plan.tensor_parallel.value = t;
    Scenario silent = scenario;
    silent.model.works[0].reduced_forward = {}, silent.model.works[0].reductions_forward = 0;
    return price(scenario).forward - price(silent).forward;
  };
  CHECK(communication(2) == us(2 + 160));    // 2 steps of 1 us; 4 MB at 25 GB/s
  CHECK(communication(4) == us(18 + 1200));  // 6 steps of 3 us; 6 MB at 5 GB/s
}

TEST_CASE("members of a group share a node's NIC: each has its part of it") {
  Scenario scenario = of_work(dense_and_norm());
  scenario.cluster.nodes = 2;
  scenario.cluster.network = Network{.bandwidth = Bandwidth{8e9}, .latency = us(3)};
  CHECK(CostModel(scenario).topology().route(0, 8).bandwidth == Bandwidth{8e9});
  scenario.plan.tensor_parallel.value = 4;
  CHECK(CostModel(scenario).topology().route(0, 8).bandwidth == Bandwidth{2e9});
  CHECK(CostModel(scenario).topology().route(0, 4).bandwidth == Bandwidth{25e9});  // ports are their own
  scenario.cluster.network->per = NicPer::Device;
  CHECK(CostModel(scenario).topology().route(0, 8).bandwidth == Bandwidth{8e9});
}

TEST_CASE("selective recomputation adds the forward of the attention cores to the backward") {
  Scenario scenario = block_scenario({.sequence = 1024, .hidden = 1024, .heads = 16, .inner = 4096}, 2, 1, {});
  const CostModel cost(scenario);
  const LayerCosts layers = cost.layers(1);
  CHECK(layers.rebuild[0] > us(0));
  CHECK(layers.rebuild[0] < layers.forward[0]);
  // Scores, softmax, dropout and weighted values: (2 s^2 h + 2 s^2 h) FLOPs at 312 TFLOP/s are less than the bytes take
  // at 2039 GB/s: 32 MiB of scores written, read and written by the softmax, by the dropout with its 16 MiB mask, read
  // again, and 2 MiB each of queries, keys, values and output: (1 + 2 + 2 + 1) 32 + 16 + 8 MiB = 216 MiB.
  CHECK(layers.rebuild[0] == Time{111'080});
  const StepCosts none = step_costs(plan_of(scenario, {{0, 2}}, {Recompute::None}), cost);
  const StepCosts selective = step_costs(plan_of(scenario, {{0, 2}}, {Recompute::Selective}), cost);
  const auto time = [](const StepCosts& costs, Kind kind) { return costs.duration[static_cast<std::size_t>(kind)]; };
  CHECK(time(selective, Kind::BW) == time(none, Kind::BW) + layers.rebuild[0] + layers.rebuild[1]);
  CHECK(time(selective, Kind::B) == time(none, Kind::B) + layers.rebuild[0] + layers.rebuild[1]);
  CHECK(time(selective, Kind::W) == time(none, Kind::W));
  CHECK(time(selective, Kind::F) == time(none, Kind::F));
  CHECK(selective.shape.recompute.empty());  // no R in the schedule
}

TEST_CASE("stages may keep, rebuild in part, or repeat their forward, each on its own") {
  const Scenario scenario = block_scenario({.sequence = 64, .hidden = 64, .heads = 4, .inner = 256}, 3, 3, {});
  const CostModel cost(scenario);
  const Plan plan =
      plan_of(scenario, {{0, 1}, {1, 2}, {2, 3}}, {Recompute::None, Recompute::Selective, Recompute::Full});
  const StepCosts costs = step_costs(plan, cost);
  CHECK(costs.shape.recompute == std::vector<bool>{false, false, true});
  const LayerCosts layers = cost.layers(1);
  const auto backward = [&](int stage) {
    return costs.duration[static_cast<std::size_t>(stage) * kKinds + static_cast<std::size_t>(Kind::BW)];
  };
  CHECK(backward(0) == layers.backward[0]);
  CHECK(backward(1) == layers.backward[1] + layers.rebuild[1]);
  CHECK(backward(2) == layers.backward[2]);
}

TEST_CASE("ZeRO-1 divides the optimizer's states and work among the workers of a stage") {
  Scenario scenario = of_work(dense_and_norm());
  scenario.training.optimizer = Optimizer::Adam;
  Plan plan = plan_of(scenario, {{0, 1}}, {Recompute::None});
  plan.data_parallel = 3;
  plan.device = {0, 1, 2};
  const auto update = [&] {
    const CostModel cost(scenario);
    return step_costs(plan, cost).duration[static_cast<std::size_t>(Kind::Update)];
  };
  CHECK(updated_parameters({1'000'000, 0}, plan, 0, scenario.training) == 1'000'000);
  CHECK(update() == Time{466'667 + 5'000});  // 28 B per parameter at 60 GB/s
  scenario.training.zero = 1;
  CHECK(updated_parameters({1'000'000, 0}, plan, 0, scenario.training) == 333'334);
  CHECK(update() == Time{155'556 + 5'000});
  plan.replicas = {2};
  CHECK(updated_parameters({1'000'000, 0}, plan, 0, scenario.training) == 166'667);
}

TEST_CASE("gradients of a group's device are reduced, in the precision they are accumulated in") {
  Scenario scenario = of_work(dense_and_norm());
  scenario.model.layers[0].parameters_on_device = 250'000;
  CHECK(buckets(scenario.model, {0, 1}, gradient_bytes(scenario.training), Bytes{1})[0].bytes == Bytes{1'000'000});
  scenario.training.precision = Precision::Bf16;
  CHECK(buckets(scenario.model, {0, 1}, gradient_bytes(scenario.training), Bytes{1})[0].bytes == Bytes{500'000});
  scenario.training.gradient_precision = Precision::Fp32;
  CHECK(buckets(scenario.model, {0, 1}, gradient_bytes(scenario.training), Bytes{1})[0].bytes == Bytes{1'000'000});
}

TEST_CASE("layers that share a work cost the same, and stated times of one of them win") {
  Scenario scenario = of_work(dense_and_norm(), 3);
  scenario.model.layers[1].forward = us(7);
  const LayerCosts costs = CostModel(scenario).layers(1);
  CHECK(costs.forward == std::vector<Time>{us(410), us(7), us(410)});
}

// Two operators forward, of 205 us each on the device and 300 us on the host: issued after 300 and 600 us, done after
// 505 and 805 us. Backward: of the inputs likewise, of the weights one operator, issued after 900 us: 1105 us.
TEST_CASE("the device waits for its host, kernel by kernel") {
  Scenario scenario = of_work(dense_and_norm());
  scenario.cluster.device.host.blocking = Blocking::Passes;
  const auto duration = [&](Kind kind) {
    const Plan plan = plan_of(scenario, {{0, 1}}, {Recompute::None});
    return step_costs(plan, CostModel(scenario)).duration[static_cast<std::size_t>(kind)];
  };
  CHECK_FALSE(price(scenario).issued);
  CHECK(duration(Kind::F) == us(410));
  CHECK(duration(Kind::BW) == us(615));
  scenario.cluster.device.host.operation = us(300);
  const CostSource::Passes passes = price(scenario);
  CHECK(passes.forward == us(410));
  CHECK(passes.issued->forward == KernelQueue{us(600), us(410), us(805)});
  CHECK(passes.issued->weight == KernelQueue{us(300), us(205), us(505)});
  CHECK(duration(Kind::F) == us(805));
  CHECK(duration(Kind::BW) == us(1105));
  scenario.cluster.device.host.operation = us(10);
  CHECK(duration(Kind::F) == us(420));  // but for the first kernel the host is ahead
}

// The last stage's forward takes 805 us, and its host is free after 600: the backward's three kernels are issued after
// 900, 1200 and 1500 us, done after 1105, 1405 and 1705 us: 900 us more. A host that waits begins it after 805 us.
TEST_CASE("on the last stage of a pipeline the host issues the backward while the device is in the forward") {
  Scenario scenario = of_work(dense_and_norm(), 2);
  scenario.plan.stages.value = 2;
  scenario.cluster.device.host.operation = us(300);
  const auto backward = [&](int stage) {
    const Plan plan = plan_of(scenario, {{0, 1}, {1, 2}}, {Recompute::None, Recompute::None});
    const auto row = static_cast<std::size_t>(stage) * kKinds + static_cast<std::size_t>(Kind::BW);
    return step_costs(plan, CostModel(scenario)).duration[row];
  };
  CHECK(backward(0) == us(1105));
  CHECK(backward(1) == us(900));
  scenario.cluster.device.host.blocking = Blocking::Passes;
  CHECK(backward(1) == us(1105));
}

// A round is forward and backward: 5 x 300 us on the host and 1025 us on the device, whose last kernel takes 205 us.
// Four rounds: 4 x 1500 + 205 us. With 100 us around each pass: 4 x 1700 + 205 us.
TEST_CASE("without a blocking point between passes the host runs ahead through the whole step") {
  Scenario scenario = of_work(dense_and_norm());
  scenario.cluster.device.host.operation = us(300);
  const auto step = [&] {
    Plan plan = plan_of(scenario, {{0, 1}}, {Recompute::None});
    plan.micro_batches = 4;
    const StepCosts costs = step_costs(plan, CostModel(scenario));
    return 4 * (costs.duration[static_cast<std::size_t>(Kind::F)] + costs.duration[static_cast<std::size_t>(Kind::BW)]);
  };
  CHECK(step() == us(6205));
  scenario.cluster.device.host.pass = us(100);
  CHECK(CostModel(scenario).source().op_overhead() == Time{});
  CHECK(step() == us(7005));
  scenario.cluster.device.host.blocking = Blocking::Passes;
  CHECK(CostModel(scenario).source().op_overhead() == us(100));
  CHECK(step() == us(4 * (905 + 1205)));
}

TEST_CASE("compiled code and CUDA graphs take less of the host, the device does the same") {
  Work work = dense_and_norm();
  work.reduced_forward = values(1e6), work.reductions_forward = 2;
  Scenario scenario = of_work(work);
  scenario.plan.tensor_parallel.value = 4;
  scenario.cluster.device.host = {.operation = us(100), .collective = us(50), .compiled = us(6), .graph_node = us(2)};
  const auto host = [&](Execution execution) {
    scenario.training.execution = execution;
    return price(scenario).issued->forward.host;
  };
  const Time device = price(scenario).forward;
  CHECK(host(Execution::Eager) == us(2 * 100 + 2 * 50));
  CHECK(host(Execution::Compiled) == us(2 * 6 + 2 * 50));
  CHECK(host(Execution::Graphs) == us(2 * 2 + 2 * 2));
  CHECK(price(scenario).forward == device);
  scenario.cluster.device.host.operation = us(4);
  CHECK(host(Execution::Compiled) == us(2 * 4 + 2 * 50));  // never slower than eager
}

// Softmax of two matrices of 1024 x 1024 scores in one sample, 1 M values moved: 4 MB at 60 GB/s, 66.667 us and a
// launch. Two are no multiple of four: 9.25 times the bytes and five launches. Two samples have four: one kernel.
TEST_CASE("Megatron's fused softmax needs a multiple of four matrices of scores") {
  Operator scores, softmax;
  scores.name = "scores", scores.module = Module::AttentionCore;
  scores.shape = {.rows = 1024, .columns = 1024, .depth = 64, .groups = 2, .of_sample = true};
  softmax.name = "softmax", softmax.module = Module::AttentionCore;
  softmax.forward_bytes = softmax.input_bytes = values(1e6);
  Work work;
  work.operators = {scores, softmax};
  work.outputs = {values(1)};
  Scenario scenario = of_work(work);
  CHECK(price(scenario).forward == Time{71'667});
  scenario.training.framework.tensors = FrameworkTensors::MegatronLocal;
  CHECK(price(scenario).forward == Time{616'667 + 25'000});
  CHECK(price(scenario, 2).forward == Time{138'333});
  scenario.cluster.device.host.operation = us(10);
  CHECK(price(scenario).issued->forward.host == us(50));
  CHECK(price(scenario).issued->rebuild == price(scenario).issued->forward);
}

// 16 rows of 64 values at 4 B, 4096 B each tensor, at 60 GB/s. Between the products 3 of them one way and 5 back become 11 and
// 18, in four kernels and five; biases of two experts move 2 both ways, and 7 and 10 times that in three kernels.
TEST_CASE("Megatron's experts clamp a GELU gate by itself, and add biases expert by expert") {
  const auto passes = [](Activation activation, bool bias, FrameworkTensors framework) {
    LayerBuilder layer;
    const auto x = layer.linear(layer.input({8, 64}), {.features = 64});
    const Experts experts{.experts = 2, .active = 2, .hidden = 64, .activation = activation, .bias = bias};
    Scenario scenario = of_work(layer.finish({layer.experts(x, experts)}));
    scenario.training.framework.tensors = framework;
    return price(scenario);
  };
  const auto more = [&](Activation activation, bool bias) {
    const auto plain = passes(activation, bias, FrameworkTensors::None),
               megatron = passes(activation, bias, FrameworkTensors::Megatron);
    CHECK(megatron.backward_weight == plain.backward_weight);
    return std::pair((megatron.forward - plain.forward).value, (megatron.backward_input - plain.backward_input).value);
  };
  CHECK(more(Activation::Silu, false) == std::pair<std::int64_t, std::int64_t>());
  const double each = 4096 / 60e9 * 1e9;
  const auto gate = more(Activation::Gelu, false), both = more(Activation::Gelu, true);
  CHECK(gate.first == doctest::Approx(8 * each + 15'000).epsilon(1e-4));
  CHECK(gate.second == doctest::Approx(13 * each + 20'000).epsilon(1e-4));
  CHECK(both.first - gate.first == doctest::Approx(12 * each + 10'000).epsilon(1e-4));
  CHECK(both.second - gate.second == doctest::Approx(18 * each + 10'000).epsilon(1e-4));
}

TEST_CASE("all-reduces of a tensor-parallel group are issued, too") {
  Work work = dense_and_norm();
  work.reduced_forward = values(1e6), work.reductions_forward = 2;
  Scenario scenario = of_work(work);
  scenario.plan.tensor_parallel.value = 4;
  scenario.cluster.device.host = {.operation = us(100), .collective = us(1000)};
  CHECK(price(scenario).issued->forward.host == us(2200));
  CHECK(price(scenario).issued->weight.host == us(100));
}

TEST_CASE("around each pass and step the host takes its time; messages count in a pipeline only") {
  Scenario scenario = of_work(dense_and_norm());
  scenario.cluster.device.host = {.pass = us(7), .message = us(3), .step = us(50)};
  CHECK(CostModel(scenario).source().op_overhead() == us(7));
  scenario.plan.stages.value = 2;
  CHECK(CostModel(scenario).source().op_overhead() == us(10));
  const Time with = CostModel(scenario).source().update(1'000'000);
  scenario.cluster.device.host.step = {};
  CHECK(with - CostModel(scenario).source().update(1'000'000) == us(50));
}

// 1 M parameters at 60 B, 100 GB/s x 0.6: 1 ms, and a launch of 5 us.
TEST_CASE("training.update_bytes is what a step moves per parameter") {
  Scenario scenario = of_work(dense_and_norm());
  scenario.training.update_bytes = Bytes{60};
  CHECK(CostModel(scenario).source().update(1'000'000) == us(1005));
}

TEST_CASE("half_work: a call of w takes as long as w + half_work at the full share") {
  Efficiency efficiency = share(0.6);
  efficiency.half_work = 2e9;
  CHECK(efficiency.at(1e10) == doctest::Approx(0.5));
  CHECK(efficiency.at(2e9) == doctest::Approx(0.3));
  efficiency.half_work = 0;
  CHECK(efficiency.at(1) == doctest::Approx(0.6));
}

// Two blocks of 205 + 205 us forward, 410 + 205 us backward; full recomputation of a block adds its forward: 1025 us
// each.
TEST_CASE("recompute: blocks repeats the forward of what is a block right before its backward, of nothing else") {
  Scenario scenario = of_work(dense_and_norm(), 2);
  const auto backward = [&] {
    const Plan plan = plan_of(scenario, {{0, 2}}, {Recompute::Blocks});
    return step_costs(plan, CostModel(scenario)).duration[static_cast<std::size_t>(Kind::BW)];
  };
  CHECK(backward() == us(2 * 615));
  scenario.model.layers[1].block = true;
  CHECK(backward() == us(615 + 1025));
  scenario.model.layers[0].block = true;
  CHECK(backward() == us(2 * 1025));
}

// Product, norm, product, sum: forward 4 x 205 us, backward 2 x 410 + 2 x 205. Stopping early the first two are repeated.
TEST_CASE("a repeated forward that stops early leaves out the last product, and what keeps nothing behind it") {
  Work work = dense_and_norm();
  work.operators[0].product = true;
  work.operators.push_back(work.operators[0]);
  work.operators.push_back(work.operators[1]);
  work.operators[3].name = "add";
  CHECK(repeated_until_read(work) == 2);
  Scenario scenario = of_work(work);
  scenario.model.layers[0].block = true;
  const auto backward = [&](Recompute mode) {
    const Plan plan = plan_of(scenario, {{0, 1}}, {mode});
    return step_costs(plan, CostModel(scenario)).duration[static_cast<std::size_t>(Kind::BW)];
  };
  CHECK(backward(Recompute::None) == us(1230));
  CHECK(backward(Recompute::Blocks) == us(1230 + 820));
  scenario.training.checkpoint_early_stop = true;
  CHECK(backward(Recompute::None) == us(1230));
  CHECK(backward(Recompute::Blocks) == us(1230 + 410));
  // What the last operator keeps itself is needed: a norm behind the product.
  work.operators.pop_back(), work.operators.pop_back(), work.operators.push_back(work.operators[1]);
  CHECK(repeated_until_read(work) == work.operators.size());
  // With tensor parallelism the all-reduce of the last product is left out with it: 6 us and 120 us of two.
  scenario.model.works[0].reduced_forward = values(1e6), scenario.model.works[0].reductions_forward = 2;
  scenario.plan.tensor_parallel.value = 4;
  const auto passes = price(scenario);
  scenario.model.works[0].reduced_forward = {}, scenario.model.works[0].reductions_forward = 0;
  CHECK(*passes.again - *price(scenario).again == us(126));
}

TEST_CASE("a set of layers repeats the forward of what is in it right before its backward, of nothing else") {
  const Scenario scenario = of_work(dense_and_norm(), 2);
  Plan plan = plan_of(scenario, {{0, 2}}, {Recompute::Layers});
  const auto backward = [&] {
    return step_costs(plan, CostModel(scenario)).duration[static_cast<std::size_t>(Kind::BW)];
  };
  CHECK(backward() == us(2 * 615));
  plan.rebuilt = {1};
  CHECK(backward() == us(615 + 1025));
  plan.rebuilt = {0, 1};
  CHECK(backward() == us(2 * 1025));
}

TEST_CASE("the host issues the next layer while the device works on this one") {
  Scenario scenario = of_work(dense_and_norm(), 2);
  Work small = dense_and_norm();  // 10 us on the device
  for (Operator& op : small.operators) {
    op.forward_flops = op.input_flops = op.weight_flops = 0;
    op.forward_bytes = op.input_bytes = values(1.0), op.weight_bytes = {}, op.parameters = op.sharded_parameters = 0;
  }
  scenario.model.works.push_back(small);
  scenario.model.layers[1].work = 1;
  scenario.cluster.device.host = {.operation = us(100), .blocking = Blocking::Passes};
  const auto forward = [&] {
    const Plan plan = plan_of(scenario, {{0, 2}}, {Recompute::None});
    return step_costs(plan, CostModel(scenario)).duration[static_cast<std::size_t>(Kind::F)];
  };
  // Large, then small: issued after 100, 200, 300 and 400 us, done after 305, 510, 515 and 520 us.
  CHECK(forward() == us(520));
  // Small, then large: done after 105, 205, 505 and 710 us.
  std::swap(scenario.model.layers[0].work, scenario.model.layers[1].work);
  CHECK(forward() == us(710));
}
