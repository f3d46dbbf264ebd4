// Experts on devices of their own: who holds which, what is exchanged, and what a device computes and keeps.
#include "core/cost/expert_exchange.hpp"

#include <cmath>
#include <tuple>

#include <doctest/doctest.h>

#include "core/cost/cost_model.hpp"
#include "core/cost/state_exchange.hpp"
#include "core/model/layer_builder.hpp"

using namespace pipewright::tests;

namespace {

// `devices` of one node behind a switch of 100 GB/s, without latency; experts of 4096 values, 14336 inside.
Scenario of_experts(int devices, std::int64_t e, std::int64_t experts = 8, std::int64_t active = 2) {
  Scenario scenario;
  scenario.cost = CostSourceKind::Roofline;
  scenario.training.precision = Precision::Bf16;
  LayerBuilder b;
  const auto y =
      b.experts(b.input({4096, 4096}), {.experts = experts, .active = active, .hidden = 14336, .gated = true});
  scenario.model.works = {b.finish({y})};
  Layer& layer = scenario.model.layers.emplace_back();
  layer.name = "experts", layer.work = 0;
  scenario.cluster.devices_per_node = devices;
  scenario.cluster.links.kind = LinkKind::Nvswitch;
  scenario.cluster.links.bandwidth = Bandwidth{100e9};
  Device& device = scenario.cluster.device;
  device.name = "X100";
  device.memory = Bytes{std::int64_t{80} << 30};
  device.peak = {{Precision::Bf16, FlopRate{100e12}}};
  device.memory_bandwidth = Bandwidth{1e15};
  scenario.plan.data_parallel.value = devices;
  scenario.plan.placement = PlacementOrder::Data;
  scenario.plan.expert_parallel.value = e;
  settle(scenario.model, Bytes{2}, scenario.plan.split());
  return scenario;
}

TokenExchange exchange_of(const Scenario& scenario) {
  return {scenario, Topology(scenario.cluster)};
}

// As the ops of one pass over the layer.
Time forward(const Scenario& scenario) {
  return CostModel(scenario).source().price(scenario.model, 0, 1).forward;
}

}  // namespace

TEST_CASE("an all-to-all leaves what stays where it is") {
  const Scenario scenario = of_experts(8, 8);
  const ExpertTokens layer{4096, 2, 8, 4096};
  CHECK(exchange_of(scenario).bytes(layer, 4096, 2 * 4096) == 58'720'256);
  CHECK(exchange_of(scenario).time(layer, 4096, 2 * 4096) == doctest::Approx(587'202.56));
  Scenario uneven = scenario;
  uneven.plan.expert_imbalance.value = 1.25;  // 73 400 320 B to the fullest device
  CHECK(exchange_of(uneven).time(layer, 4096, 2 * 4096) == doctest::Approx(734'003.2));
  Scenario gathered = scenario;
  gathered.plan.expert_exchange.value = ExpertExchange::AllGather;  // 7 x 4096 x 8192 B arrive
  CHECK(exchange_of(gathered).time(layer, 4096, 2 * 4096) == doctest::Approx(4096.0 * 8192 * 7 / 100).epsilon(1e-6));
  CHECK_FALSE(exchange_of(of_experts(8, 1)).any());
}

// Of 1.25 times the mean a capacity of 1.1 leaves 1.1; filled up it is 1.1 however few come, and the same for experts that
// every device has.
TEST_CASE("a capacity limits what the fullest device gets, and padding fills it") {
  const ExpertTokens layer{4096, 2, 8, 4096};
  const auto with = [&](std::int64_t e, double imbalance, double capacity, bool padding) {
    Scenario scenario = of_experts(8, e);
    scenario.plan.expert_imbalance.value = imbalance;
    if (capacity > 0) scenario.plan.expert_capacity = Placed<double>{capacity, {}};
    scenario.plan.expert_padding = padding;
    return scenario;
  };
  const auto sent = [&](const Scenario& scenario) { return exchange_of(scenario).time(layer, 4096, 2 * 4096); };
  const double even = sent(with(8, 1, 0, false));
  CHECK(sent(with(8, 1.25, 1.1, false)) == doctest::Approx(1.1 * even));
  CHECK(sent(with(8, 1.05, 1.1, false)) == doctest::Approx(1.05 * even));
  CHECK(sent(with(8, 1.05, 1.1, true)) == doctest::Approx(1.1 * even));
  CHECK(sent(with(8, 1.25, 1.1, true)) == doctest::Approx(1.1 * even));
  // The products of a whole pass: 2.886 TFLOP.
  const double products = 2 * 4096 * 2 * 3.0 * 4096 * 14336 / 100e12 * 1e9;
  for (const auto& [e, imbalance, padding, load] : {std::tuple{8, 1.25, false, 1.1},
                                                    {8, 1.05, false, 1.05},
                                                    {8, 1.0, true, 1.1},
                                                    {1, 1.25, false, 1.0},
                                                    {1, 1.25, true, 1.1}}) {
    CAPTURE(e);
    CAPTURE(padding);
    const Scenario scenario = with(e, imbalance, 1.1, padding);
    const double exchanges = e > 1 ? 2 * load * even : 0;
    CHECK(static_cast<double>(forward(scenario).value) == doctest::Approx(load * products + exchanges).epsilon(1e-3));
    CHECK(scenario.plan.expert_load(scenario.plan.split()) == load);
  }
  CHECK(expert_workspace(layer, with(8, 1.25, 1.1, false).plan, 4096, 2) ==
        doctest::Approx(1.1 * expert_workspace(layer, with(8, 1, 0, false).plan, 4096, 2)));
}

// A shared expert of 4096 x 2 x 2048 and 2048 x 4096: 137.4 GFLOP, of which the first product is two thirds: 1374 us at
// 100 TFLOP/s, 687 us for the last; exchanges of 587 us are hidden by both, of 58.7 ms (100 times as slow) neither.
TEST_CASE("shared experts compute while tokens travel: of an exchange the rest is left") {
  const auto with = [](double bandwidth, bool beside, int layers = 1) {
    Scenario scenario = of_experts(8, 8);
    scenario.cluster.links.bandwidth = Bandwidth{bandwidth};
    scenario.plan.shared_experts_beside.value = beside;
    LayerBuilder b;
    b.within(Module::Experts);
    auto x = b.input({4096, 4096});
    for (int i = 0; i < layers; ++i) {
      const auto y = b.experts(x, {.experts = 8, .active = 2, .hidden = 14336, .gated = true});
      b.within(Module::SharedExperts);
      const auto opened = b.linear(x, {.features = 4096, .bias = false, .split = Split::Columns});
      const auto shared =
          b.linear(b.gated(opened, Activation::Silu), {.features = 4096, .bias = false, .split = Split::Rows});
      b.within(Module::Experts);
      x = b.add(y, shared);
    }
    scenario.model.works = {b.finish({x})};
    settle(scenario.model, Bytes{2}, scenario.plan.split());
    return CostModel(scenario).source().price(scenario.model, 0, 1);
  };
  const double first = 2 * 4096.0 * 4096 * 4096 / 100e12 * 1e9, last = first / 2;
  for (const auto& [bandwidth, exchange] : {std::pair{100e9, 587'202.56}, {10e9, 5'872'025.6}}) {
    const double hidden = std::min(exchange, first) + std::min(exchange, last);
    for (const int layers : {1, 2}) {
      const auto after = with(bandwidth, false, layers), beside = with(bandwidth, true, layers);
      CHECK(static_cast<double>((after.forward - beside.forward).value) ==
            doctest::Approx(layers * hidden).epsilon(1e-3));
      CHECK(static_cast<double>((after.backward_input - beside.backward_input).value) ==
            doctest::Approx(layers * hidden).epsilon(1e-3));
      CHECK(after.backward_weight == beside.backward_weight);
    }
  }
}

// A forward that stops early leaves the last product out, and the combine with it.
TEST_CASE("a repeated forward hides exchanges behind what it computes alone") {
  const auto repeated = [](bool beside) {
    Scenario scenario = of_experts(8, 8);
    scenario.plan.shared_experts_beside.value = beside;
    scenario.training.checkpoint_early_stop = true;
    LayerBuilder b;
    b.within(Module::Experts);
    const auto x = b.input({4096, 4096});
    const auto y = b.experts(x, {.experts = 8, .active = 2, .hidden = 14336, .gated = true});
    b.within(Module::SharedExperts);
    const auto opened = b.linear(x, {.features = 4096, .bias = false, .split = Split::Columns});
    b.linear(b.gated(opened, Activation::Silu), {.features = 4096, .bias = false, .split = Split::Rows});
    scenario.model.works = {b.finish({y})};
    settle(scenario.model, Bytes{2}, scenario.plan.split());
    return CostModel(scenario).source().price(scenario.model, 0, 1);
  };
  const auto after = repeated(false), beside = repeated(true);
  REQUIRE(after.again.has_value());
  CHECK(*after.again < after.forward);
  const double exchange = 587'202.56;
  CHECK(static_cast<double>((after.forward - beside.forward).value) == doctest::Approx(2 * exchange).epsilon(1e-3));
  CHECK(static_cast<double>((*after.again - *beside.again).value) == doctest::Approx(exchange).epsilon(1e-3));
}

TEST_CASE("nodes that a token is sent to") {
  CHECK(nodes_of_token(256, 8, 8, 4) == doctest::Approx(3.62901).epsilon(1e-5));
  CHECK(nodes_of_token(256, 8, 8, 4) * 7 / 8 == doctest::Approx(3.17538).epsilon(1e-5));
  CHECK(nodes_of_token(8, 2, 1, 1) == 1);
  CHECK(nodes_of_token(16, 1, 4, 4) == doctest::Approx(1));   // one expert, one node
  CHECK(nodes_of_token(4, 4, 4, 4) == doctest::Approx(4));    // all experts, all nodes
  CHECK(nodes_of_token(256, 8, 8, 1) == doctest::Approx(1));  // all on the one that is allowed
}

TEST_CASE("once per node, a row passes the network fewer times") {
  Scenario scenario = of_experts(8, 64, 256, 8);
  scenario.cluster.nodes = 8;
  scenario.cluster.network = Network{};
  scenario.cluster.network->bandwidth = Bandwidth{50e9}, scenario.cluster.network->per = NicPer::Device;
  scenario.plan.data_parallel.value = 64, scenario.plan.expert_nodes = Placed<std::int64_t>{4, {}};
  const ExpertTokens layer{4096, 8, 256, 7168};
  const double row = 2 * 7168;
  CHECK(exchange_of(scenario).bytes(layer, 4096, row) == doctest::Approx(462.4e6).epsilon(1e-3));
  scenario.plan.expert_exchange.value = ExpertExchange::PerNode;
  CHECK(exchange_of(scenario).bytes(layer, 4096, row) == doctest::Approx(186.5e6).epsilon(1e-3));
  // 186.5 MB at 50 GB/s beside 378 MB that are handed on to 7.36 devices at 100 GB/s.
  const double ends = nodes_of_token(256, 8, 64, 32);
  CHECK(ends == doctest::Approx(7.359).epsilon(1e-3));
  CHECK(exchange_of(scenario).time(layer, 4096, row) ==
        doctest::Approx(std::max(186.5e6 / 50, 4096 * ends * row * 7 / 8 / 100)).epsilon(1e-3));
  scenario.cluster.links.bandwidth = Bandwidth{400e9};
  CHECK(exchange_of(scenario).time(layer, 4096, row) == doctest::Approx(3.73e6).epsilon(1e-3));
}

TEST_CASE("a device computes as much, on whole experts and the rows of all devices") {
  const Scenario apart = of_experts(8, 8), together = of_experts(8, 1);
  // 2 experts of 3 x 4096 x 14336 parameters for 4096 tokens: 2.886 TFLOP, and two exchanges.
  const double products = 2 * 4096 * 2 * 3.0 * 4096 * 14336 / 100e12 * 1e9;
  CHECK(static_cast<double>(forward(apart).value) == doctest::Approx(products + 2 * 587'202.56).epsilon(1e-3));
  CHECK(static_cast<double>(forward(together).value) == doctest::Approx(products).epsilon(1e-3));
  const Work& work = apart.model.works[0];
  const TensorParallel split = apart.plan.split();
  for (const Operator& op : work.operators)
    if (op.shape) {
      const ProductShape whole = op.shape.call(PassKind::Forward, 1, {}, false),
                         own = op.shape.call(PassKind::Forward, 1, split, false);
      CHECK(whole.m == 1024);
      CHECK(whole.batch == 8);
      CHECK(own.m == 8192);
      CHECK(own.batch == 1);
      CHECK(own.n == whole.n);
    }
  // Tensor parallelism of 4 with whole experts: a device has a fourth of the tokens, and experts are not divided.
  const TensorParallel folded{4, true, 8, 1};
  for (const Operator& op : work.operators)
    if (op.shape) {
      const ProductShape own = op.shape.call(PassKind::Forward, 1, folded, false);
      CHECK(own.m == 2048);
      CHECK(own.batch == 1);
      CHECK(own.n == op.shape.call(PassKind::Forward, 1, {}, false).n);
    }
}

// 8 rows per token: at 0.5 of 100 GB/s behind 10 us, or at 0.9 of it behind 1 ms; handed on to 5.43 of 8 devices at 0.25 of it.
TEST_CASE("inside a node exchanges run as the device's curve has it") {
  Scenario scenario = of_experts(8, 8, 64, 8);
  const ExpertTokens layer{4096, 8, 64, 4096};
  const double row = 2 * 4096, all = 4096 * 8 * row * 7 / 8;
  scenario.cluster.device.collectives.emplace();
  scenario.cluster.device.collectives->all_to_all = {{.start = 3, .hop = 1, .share = 0.5, .lost = 0},
                                                     {.start = 1000, .hop = 0, .share = 1, .lost = 0.8}};
  CHECK(exchange_of(scenario).time(layer, 4096, row) == doctest::Approx(1e6 + all / 90));
  CHECK(exchange_of(scenario).time(layer, 64, row) == doctest::Approx(10e3 + all / 64 / 50));
  scenario.plan.expert_exchange.value = ExpertExchange::PerNode;
  CHECK(exchange_of(scenario).time(layer, 64, row) ==
        doctest::Approx(10e3 + all / 64 / 50 * nodes_of_token(64, 8, 8, 8) / 8));
  scenario.cluster.device.collectives->handed_on = 0.25;
  CHECK(exchange_of(scenario).time(layer, 4096, row) == doctest::Approx(all / 25 * nodes_of_token(64, 8, 8, 8) / 8));
}

// Rows that are sorted by expert move at the share that the device states for it, which is memory's elsewhere.
TEST_CASE("permutations of tokens have a share of their own") {
  Scenario scenario = of_experts(8, 8, 16);
  scenario.cluster.device.memory_bandwidth = Bandwidth{1e12};
  const auto forward_of = [&] { return static_cast<double>(forward(scenario).value); };
  const double before = forward_of();
  Efficiency half;
  half.curve = {{1.0, 0.5}};
  scenario.cluster.device.efficiency[static_cast<std::size_t>(OperatorKind::Permutation)] = half;
  // Copied to rows, sorted, sorted back, summed: (1 + 2) + 4 + 4 + (2 + 1) times 4096 x 8 KiB.
  CHECK(forward_of() - before == doctest::Approx(14 * 4096.0 * 8192 / 1e12 * 1e9).epsilon(1e-3));
}

// The host issues the router's kernels, reads the counts, and only then goes on.
TEST_CASE("the host waits for the counts of tokens, unless shapes are known") {
  Scenario scenario = of_experts(8, 8, 16);
  scenario.cluster.device.host.operation = Time{1000};
  const auto waits = [&] { return CostModel(scenario).source().price(scenario.model, 0, 1).issued->forward.waits; };
  CHECK(waits());
  CHECK_FALSE(CostModel(scenario).source().price(scenario.model, 0, 1).issued->input.waits);
  scenario.plan.expert_capacity = Placed<double>{1.25, {}};
  CHECK(waits());
  scenario.plan.expert_padding = true;
  CHECK_FALSE(waits());
}

// 4096 tokens to 2 experts each: 8192 rows of 8 KiB, read and written, 134.2 us at 1 TB/s, there and back.
TEST_CASE("rows of an all-to-all are sorted where a device has several experts") {
  const auto of = [](std::int64_t experts, ExpertExchange exchange) {
    Scenario scenario = of_experts(8, 8, experts);
    scenario.cluster.device.memory_bandwidth = Bandwidth{1e12};
    scenario.plan.expert_exchange.value = exchange;
    return CostModel(scenario).source().price(scenario.model, 0, 1);
  };
  const double sorted = 2 * 8192.0 * 8192 / 1e12 * 1e9;
  const auto one = of(8, ExpertExchange::AllToAll), two = of(16, ExpertExchange::AllToAll);
  CHECK((two.forward - one.forward).value == doctest::Approx(2 * sorted).epsilon(1e-4));
  CHECK((two.backward_input - one.backward_input).value == doctest::Approx(2 * sorted).epsilon(1e-4));
  CHECK(of(16, ExpertExchange::AllGather).forward == of(8, ExpertExchange::AllGather).forward);
  // What is computed beside the exchange keeps the sorting.
  CHECK((of(16, ExpertExchange::OnlySorted).forward - of(16, ExpertExchange::Unpriced).forward).value ==
        doctest::Approx(2 * sorted).epsilon(1e-4));
}

// Two devices divide each expert: both get the rows of both.
TEST_CASE("sorted rows of divided experts") {
  const auto sorted = [](int tensor, int expert_tensor) {
    const auto of = [&](ExpertExchange exchange) {
      Scenario scenario = of_experts(8, 2, 16);
      scenario.cluster.device.memory_bandwidth = Bandwidth{1e12};
      scenario.plan.data_parallel.value = 8 / tensor;
      scenario.plan.tensor_parallel.value = tensor;
      scenario.plan.sequence_parallel.value = tensor > 1;
      scenario.plan.expert_tensor_parallel.value = expert_tensor;
      scenario.plan.expert_exchange.value = exchange;
      return CostModel(scenario).source().price(scenario.model, 0, 1).forward;
    };
    return static_cast<double>((of(ExpertExchange::OnlySorted) - of(ExpertExchange::Unpriced)).value);
  };
  CHECK(sorted(2, 2) == doctest::Approx(sorted(1, 1)).epsilon(1e-4));
  CHECK(sorted(2, 1) == doctest::Approx(sorted(1, 1) / 2).epsilon(1e-4));
}

TEST_CASE("parameters and kept tensors of a device") {
  const Scenario scenario = of_experts(8, 8);
  const Work& work = scenario.model.works[0];
  const std::int64_t all = std::int64_t{8} * 3 * 4096 * 14336;
  CHECK(work.expert_parameters == all);
  CHECK(parameters_on_device(work, {1, false, 8, 0}) == all / 8);
  CHECK(expert_parameters_on_device(work, {1, false, 8, 0}) == all / 8);
  CHECK(parameters_on_device(work, {4, true, 2, 4}) == all / 8);
  CHECK(expert_parameters_on_device(work, {4, true, 1, 0}) == 0);  // a part of every expert, as other products
  CHECK(parameters_on_device(work, {4, true, 1, 0}) == all / 4);
  // With sequence parallelism a device sends a fourth of the rows: nothing is gathered first.
  const auto kept = [&](TensorParallel split) { return work.kept.on_device(Bytes{2}, split); };
  CHECK(kept({4, true, 8, 1}) == doctest::Approx(kept({1, false, 8, 0}) / 4));
}

TEST_CASE("an expert that two devices divide is gathered and scattered between them") {
  // t = 2, x = 2, e = 4: devices {0, 1} have a half each of the same experts. Each sends its own 2048 tokens to one of 4 sets.
  Scenario scenario = of_experts(8, 4);
  scenario.plan.tensor_parallel.value = 2, scenario.plan.sequence_parallel.value = true;
  scenario.plan.data_parallel.value = 4;
  const ExpertTokens layer{4096, 2, 8, 4096};
  const TokenExchange exchange = exchange_of(scenario);
  CHECK(exchange.calls() == 2);
  const double rows = 2048.0 * 2 * 8192;  // of a device
  CHECK(exchange.bytes(layer, 2048, 8192) == rows * 3 / 4);
  CHECK(exchange.time(layer, 2048, 8192) == doctest::Approx(rows * 3 / 4 / 100 + rows / 100).epsilon(1e-5));
  // Nothing is uneven where each device has all experts.
  scenario.plan.expert_parallel.value = 1, scenario.plan.expert_tensor_parallel.value = 1;
  scenario.plan.expert_imbalance.value = 1.5;
  CHECK_FALSE(exchange_of(scenario).any());
}

TEST_CASE("gradients of experts are reduced with those that hold the same") {
  // 16 devices, e = 4: dense ones over 16, experts over {0, 4, 8, 12} and its like.
  const Scenario scenario = of_experts(16, 4);
  const CostModel cost(scenario);
  Plan plan;
  plan.schedule = "1f1b";
  plan.data_parallel = 16, plan.expert_parallel = 4;
  plan.replicas = {1};
  plan.layers = {{0, 1}};
  plan.recompute = {Recompute::None};
  for (DeviceId device = 0; device < 16; ++device)
    plan.device.push_back(device);
  CHECK(plan.expert_copies() == 4);
  const StateExchange exchange(plan, 0, cost);
  REQUIRE(exchange.groups().size() == 2);
  CHECK(exchange.groups()[0].members() == 16);
  CHECK(exchange.groups()[1].members() == 4);
  // 1.6 GB at 100 GB/s: 2 x 15/16 of dense gradients, 2 x 3/4 of experts'.
  const Bytes size{1'600'000'000};
  CHECK(exchange.reduce({size, Bytes{}}).time == Time{30'000'000});
  CHECK(exchange.reduce({size, size}).time == Time{24'000'000});
  CHECK(sharded({1600, 0}, plan.sharded_over(0), plan.expert_copies()) == 100);
  CHECK(sharded({1600, 800}, plan.sharded_over(0), plan.expert_copies()) == 50 + 200);
  // Tensor parallelism of 4 with whole experts, 2 devices hold them: 16 devices, of which 8 hold the same.
  Plan within = plan;
  within.tensor_parallel = 4, within.data_parallel = 4, within.expert_parallel = 2, within.expert_tensor_parallel = 1;
  within.device = {0, 4, 8, 12};
  CHECK(within.expert_copies() == 8);
  const StateExchange of_members(within, 0, cost);
  REQUIRE(of_members.groups().size() == 2);
  CHECK(of_members.groups()[0].members() == 4);
  CHECK(of_members.groups()[1].members() == 8);
}

// t = 8 and four sets of experts: two devices of each node hold the same experts. For everything else the lead of a group has an
// eighth of the node's NIC; these exchanges are priced on the whole NIC, so their loads must not be added to the lead's.
TEST_CASE("gradients of experts that tensor-parallel groups divide are priced by all members, and load no links") {
  Scenario scenario = of_experts(8, 4);
  scenario.training.zero = 1;
  scenario.cluster.nodes = 2;
  scenario.cluster.network = Network{};
  scenario.cluster.network->bandwidth = Bandwidth{10e9};
  scenario.plan.tensor_parallel.value = 8, scenario.plan.sequence_parallel.value = true;
  scenario.plan.data_parallel.value = 2;
  scenario.plan.expert_tensor_parallel.value = 1;
  const CostModel cost(scenario);
  Plan plan;
  plan.tensor_parallel = 8, plan.sequence_parallel = true, plan.data_parallel = 2, plan.expert_parallel = 4;
  plan.expert_tensor_parallel = 1, plan.device = {0, 8}, plan.replicas = {1};
  const StateExchange exchange(plan, 0, cost);
  REQUIRE(exchange.groups().size() == 2);
  CHECK(exchange.groups()[1].members() == 4);
  const Collective dense = exchange.reduce({Bytes{1'000'000}, Bytes{}});
  const Collective both = exchange.reduce({Bytes{2'000'000}, Bytes{1'000'000}});
  CHECK(both.time > dense.time);
  REQUIRE(both.phases.size() > dense.phases.size());
  for (std::size_t i = dense.phases.size(); i < both.phases.size(); ++i)
    CHECK(both.phases[i].links.empty());
}
