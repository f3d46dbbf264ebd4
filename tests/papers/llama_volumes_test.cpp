// What Llama 3 8B and 70B send, compute and wait for where their weights or their sequences are divided: the closed forms
// of [ZeRO20], [FSDP23] and [RingAttention23] with the shapes of [LlamaTeam24] table 3.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/cost/context_exchange.hpp"
#include "core/cost/state_exchange.hpp"
#include "io/read/read_scenario.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/family_model.hpp"

using namespace pipewright::tests;

namespace {

constexpr double kGiga = 1e9, kTera = 1e12;

double in_ms(Time time) {
  return seconds(time) * 1e3;
}

Model llama_model(const char* hidden, const char* heads, const char* inner, const std::string& layers,
                  const std::string& tokens) {
  return family_model("decoder", {{"layers", layers},
                                  {"hidden", hidden},
                                  {"feed_forward", inner},
                                  {"heads", heads},
                                  {"key_heads", "8"},
                                  {"vocabulary", "128256"},
                                  {"sequence_length", tokens}});
}
Model llama_8b(const std::string& layers = "1") {
  return llama_model("4096", "32", "14336", layers, "8192");
}

// `layers` of its blocks in a chain, in bf16 with gradients in fp32, on devices of 600 TFLOP/s behind ports of 300 GB/s
// that nothing else delays.
Scenario chain_of_blocks(const Model& of, int layers, int devices) {
  Scenario scenario;
  scenario.cost = CostSourceKind::Roofline;
  Model& model = scenario.model;
  model.name = "blocks";
  model.works = {work_of(of, "block.0")};
  model.input_amount = model.works[0].inputs[0];
  for (LayerId i = 0; i < layers; ++i) {
    Layer& layer = model.layers.emplace_back();
    layer.name = "block." + std::to_string(i), layer.work = 0, layer.block = true;
    if (i > 0) layer.inputs = {i - 1};
  }
  scenario.cluster.devices_per_node = devices;
  scenario.cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = Bandwidth{300e9}, .latency = {}};
  Device& device = scenario.cluster.device;
  device.name = "X100";
  device.memory = Bytes{std::int64_t{80} << 30};
  device.peak[Precision::Bf16] = FlopRate{600e12};
  device.memory_bandwidth = Bandwidth{1e18};  // arithmetic alone
  scenario.training.precision = Precision::Bf16;
  scenario.training.optimizer = Optimizer::Adam;
  scenario.training.gradient_precision = Precision::Fp32;
  scenario.training.micro_batch_size = scenario.training.micro_batches = Placed<std::int64_t>{1, {}};
  settle(model, weight_bytes(scenario.training.precision), {});
  return scenario;
}

// Copies that divide the weights among them.
Scenario fsdp(int layers, int copies) {
  Scenario scenario = chain_of_blocks(llama_8b(), layers, copies);
  scenario.plan.stages.value = 1, scenario.plan.data_parallel.value = copies;
  scenario.training.zero = 3;
  return scenario;
}

// Eight devices a node, and on each a NIC of 50 GB/s.
void on_nodes_of_eight(Cluster& cluster, int nodes) {
  cluster.nodes = nodes, cluster.devices_per_node = 8;
  cluster.network.emplace();
  cluster.network->bandwidth = Bandwidth{50e9}, cluster.network->per = NicPer::Device;
}

// Bytes that leave a member, phase by phase.
std::vector<double> moved(const Collective& collective) {
  std::vector<double> bytes;
  for (const CollectivePhase& phase : collective.phases)
    bytes.push_back(phase.bytes);
  return bytes;
}
double moved_in_all(const Collective& collective) {
  const std::vector<double> bytes = moved(collective);
  return std::accumulate(bytes.begin(), bytes.end(), 0.0);
}

// Of one unit: its weights, gathered, and its gradients in fp32, reduced.
struct UnitExchanges {
  Bytes weights;
  Collective gather, reduce;
};
UnitExchanges of_a_unit(const Scenario& scenario) {
  const CostModel cost(scenario);
  const Plan plan = find_plan(scenario, cost);
  const StateExchange exchange(plan, 0, cost);
  const StateExchange::Share weights = gathered_weights(plan, 0, plan.layers[0], scenario);
  return {weights.all, exchange.gather(weights), exchange.reduce({Bytes{2 * weights.all.value}, {}})};
}

}  // namespace

TEST_CASE(
    "Llama 3 8B, FSDP over 8: a block is gathered by 381.7 MB and reduced in fp32 by 763.4 MB that leave a device") {
  CHECK(parameters_of(llama_8b("32")) == 8'030'261'248);
  CHECK(work_of(llama_8b(), "block.0").parameters == 218'112'000);
  const UnitExchanges unit = of_a_unit(fsdp(4, 8));
  CHECK(unit.weights == Bytes{436'224'000});
  CHECK(moved(unit.gather) == std::vector<double>{381'696'000});
  CHECK(moved(unit.reduce) == std::vector<double>{763'392'000});
  // At 300 GB/s.
  CHECK(unit.gather.time == Time{1'272'320});
  CHECK(unit.reduce.time == Time{2'544'640});
  // Over 64 devices: 63 of 64 parts.
  Scenario many = fsdp(4, 64);
  on_nodes_of_eight(many.cluster, 8);
  CHECK(moved_in_all(of_a_unit(many).gather) == 429'408'000);
}

TEST_CASE("Llama 3 8B, 8192 tokens: a block's forward is 3.573 TFLOP of products and 0.550 of attention") {
  double products = 0, attention = 0;
  const auto model = llama_8b();
  for (const Operator& op : work_of(model, "block.0").operators)
    (op.attention.heads > 0 ? attention : products) += op.product || op.attention.heads > 0 ? op.forward_flops : 0;
  CHECK(products == 2.0 * 8192 * (218'112'000 - 2 * 4096));
  CHECK(std::abs(products / kTera - 3.573) < 0.0005);
  CHECK(attention == 4.0 * 4096 * (8192.0 * 8193 / 2));
  CHECK(std::abs(attention / kTera - 0.550) < 0.0005);
  CHECK(std::abs((products + attention) / kTera - 4.123) < 0.0005);
}

// Forwards of 4.123 TFLOP take 6.87 ms at 600 TFLOP/s, backwards twice that and what the kernel of attention computes again,
// a quarter of its own: every gather of 1.27 ms and every reduction of 2.54 ms is hidden but for the first and the last.
TEST_CASE("Llama 3 8B, FSDP over 8: a step shows one gather and one reduction of all its blocks'") {
  for (const int layers : {1, 4, 32}) {
    CAPTURE(layers);
    Scenario scenario = fsdp(layers, 8);
    const LayerCosts costs = CostModel(scenario).layers(1);
    CHECK(in_ms(costs.forward[0]) == doctest::Approx(6.872).epsilon(1e-3));
    CHECK(in_ms(costs.backward[0]) == doctest::Approx(2 * 6.872).epsilon(0.05));
    const Answer answer = priced(scenario);
    const Time computed{layers * (costs.forward[0] + costs.backward[0]).value};
    // The update itself, of which nothing is computed or read in any time, is rounded up to 1 ns.
    CHECK(std::abs((answer.report.step_time - computed).value - (1'272'320 + 2'544'640)) <= 1);
  }
}

// An all-gather of a block among 8 H100 takes 1.2 to 1.3 ms and a reduce-scatter of its gradients 2.25 ms, as NCCL was measured
// by AIConfigurator (github.com/ai-dynamo/aiconfigurator). Over 64 in 8 nodes rings use all eight NICs of a node: 429 MB at what
// NVLink reaches, 1.4 ms, and 0.15 to 0.3 ms of latency; through one NIC it would be 8.6 ms.
TEST_CASE("Llama 3 8B, FSDP on H100: gathers run at NVLink's pace on a node, and almost so on eight") {
  const char* const source = std::getenv("PIPEWRIGHT_SOURCE");
  REQUIRE(source != nullptr);
  const std::string root = source;
  Scenario scenario = fsdp(1, 8);
  const auto times = [&](int nodes) {
    scenario.cluster =
        read_scenario(root + "/scenarios/what_if/llama3-70b-fsdp.yaml",
                      {.set = {"cluster.nodes=" + std::to_string(nodes)}, .config_path = {root + "/configs"}})
            .cluster;
    scenario.plan.data_parallel.value = 8 * nodes;
    const UnitExchanges unit = of_a_unit(scenario);
    return std::pair{in_ms(unit.gather.time), in_ms(unit.reduce.time)};
  };
  const auto [gather, reduce] = times(1);
  CHECK(gather > 1.1);
  CHECK(gather < 1.4);
  CHECK(reduce > 2.1);
  CHECK(reduce < 2.5);
  const auto [wide, unused] = times(8);
  CHECK(wide > 1.4);
  CHECK(wide < 1.8);
}

// Groups of 8 on nodes: gathers among them move what they do on one node; 27.264 million gradients of each block are then
// all-reduced over the 8 nodes.
TEST_CASE("Llama 3 8B, hybrid sharding of 8 x 8: 27.3 million gradients of a block are all-reduced between the nodes") {
  Scenario scenario = fsdp(1, 64);
  on_nodes_of_eight(scenario.cluster, 8);
  scenario.plan.shard = Placed<std::int64_t>{8, {}};
  const UnitExchanges unit = of_a_unit(scenario);
  CHECK(moved(unit.gather) == std::vector<double>{381'696'000});
  const std::vector<double> reduced = moved(unit.reduce);
  REQUIRE(reduced.size() == 2);
  CHECK(reduced[0] == 763'392'000);
  CHECK(reduced[1] == 2.0 * 7 / 8 * 27'264'000 * 4);
}

// 2 B a gradient and a weight, 7/8 of all leave a device: 14.05 GB a time. ZeRO-2 scatters behind each of four micro-batches.
// [ZeRO20] section 7: what a step moves.
TEST_CASE(
    "Llama 3 8B over 8, four micro-batches: ZeRO-2 reduces by 56.2 GB, ZeRO-1 by 14.05 GB; both gather by 14.05 GB") {
  Scenario scenario = fsdp(1, 8);
  Layer whole;
  whole.name = "all", whole.parameters = 8'030'261'248, whole.activation = Bytes{1000};
  whole.forward = whole.backward = Time{1'000'000};
  scenario.model = {};
  scenario.model.name = "llama", scenario.model.layers = {whole};
  scenario.cost = CostSourceKind::Explicit;
  scenario.cluster.device.memory = Bytes{std::int64_t{800} << 30};
  scenario.training.gradient_precision.reset();
  scenario.training.micro_batches->value = 4;
  const auto sent = [&](std::int64_t zero) {
    scenario.training.zero = zero;
    const Answer answer = priced(scenario);
    double reductions = 0, gathers = 0;
    for (const Op& op : answer.schedule.positions[0].communication[kReductions])
      reductions += moved_in_all(answer.costs.collectives[0][static_cast<std::size_t>(op.bucket)]);
    for (const Op& op : answer.schedule.positions[0].communication[kGathers])
      gathers += op.bucket == (zero == 1 ? kBehindUpdate : 0) ? moved_in_all(answer.costs.gathers[0]) : 1e30;
    return std::pair{reductions / kGiga, gathers / kGiga};
  };
  const double once = 7.0 / 8 * 2 * 8.030261248;
  CHECK(std::abs(once - 14.05) < 0.005);
  CHECK(std::abs(4 * once - 56.2) < 0.05);
  CHECK(sent(1).first == doctest::Approx(once));
  CHECK(sent(1).second == doctest::Approx(once));
  CHECK(sent(2).first == doctest::Approx(4 * once));
  CHECK(sent(2).second == doctest::Approx(once));
}

namespace {

// A layer of Llama 3 70B in groups of eight, each device of which has an eighth of the heads; `context` groups share a
// sequence. 989 TFLOP/s, of which products reach 0.6.
Scenario shared_sequence(int context, std::int64_t tokens, ContextSplit split = ContextSplit::Zigzag) {
  Scenario scenario = chain_of_blocks(llama_model("8192", "64", "28672", "1", std::to_string(tokens)), 1, 8 * context);
  scenario.plan.tensor_parallel.value = 8;
  scenario.plan.context_parallel.value = context;
  scenario.plan.context_split.value = split;
  scenario.cluster.device.peak[Precision::Bf16] = FlopRate{0.6 * 989e12};
  settle(scenario.model, Bytes{2}, scenario.plan.split());
  return scenario;
}
const Operator& attention_of(const Scenario& scenario) {
  const auto& all = scenario.model.works[0].operators;
  const auto found = std::find_if(all.begin(), all.end(), [](const Operator& op) { return op.attention.heads > 0; });
  PP_CHECK(found != all.end());
  return *found;
}
// TFLOP of a device in one step, and in all of a forward.
struct AttentionFlops {
  double step, all;
};
AttentionFlops attention_flops(const Scenario& scenario) {
  const Operator& op = attention_of(scenario);
  const ContextAttention shared(scenario, Topology(scenario.cluster));
  const double step = op.forward_flops / 8 * shared.flops_share(op.attention) / kTera;
  return {step, step * shared.kernels()};
}

}  // namespace

// Products: 2 x 855.638 million x 131072 / c / 8 FLOP. Attention: 4 x 8192 FLOP for each of s (s + 1) / 2 pairs, / c / 8.
TEST_CASE("Llama 3 70B, 131072 tokens on 2, 4 and 8 groups of 8: FLOPs of a device, by what takes the time") {
  CHECK(work_of(llama_model("8192", "64", "28672", "1", "8192"), "block.0").parameters == 855'654'400);
  struct Row {
    int context;
    double products, attention, step;  // TFLOP
  };
  for (const Row& row : {Row{2, 14.019, 17.592, 8.796}, Row{4, 7.009, 8.796, 2.199}, Row{8, 3.505, 4.398, 0.550}}) {
    CAPTURE(row.context);
    Scenario scenario = shared_sequence(row.context, 131072);
    const AttentionFlops attention = attention_flops(scenario);
    CHECK(std::abs(attention.step - row.step) < 0.0006);
    CHECK(std::abs(attention.all - row.attention) < 0.0006);
    double products = 0;
    for (const Operator& op : scenario.model.works[0].operators)
      products += op.product && op.attention.heads == 0 ? op.forward_flops / 8 / row.context / kTera : 0;
    CHECK(std::abs(products - row.products) < 0.0006);
    // The time of a forward on links that take none: both at 593.4 TFLOP/s, and a little arithmetic of norms and gates.
    scenario.cluster.links = {.kind = LinkKind::Ideal};
    const double flops = in_ms(CostModel(scenario).layers(1).forward[0]) * 1e-3 * 0.6 * 989;
    CHECK(flops == doctest::Approx(products + attention.all).epsilon(1e-3));
    // In one stretch the last group has 2 - 1/c of the mean.
    const AttentionFlops last = attention_flops(shared_sequence(row.context, 131072, ContextSplit::Contiguous));
    CHECK(last.all == doctest::Approx(row.attention * (2 - 1.0 / row.context)).epsilon(1e-4));
    scenario.plan.context_split.value = ContextSplit::Contiguous;
    const double uneven = in_ms(CostModel(scenario).layers(1).forward[0]) * 1e-3 * 0.6 * 989;
    CHECK(uneven - flops == doctest::Approx(row.attention * (1 - 1.0 / row.context)).epsilon(1e-4));
  }
}

// Keys and values of a device go over a NIC of 50 GB/s: 8.39 MB in 0.168 ms beside steps of 0.927 ms; both shrink with the
// sequence, the steps by its square.
TEST_CASE(
    "Llama 3 70B on 8 groups of 8: a ring over NICs is hidden from 131072 tokens, just so from 32768, not from 8192") {
  struct Row {
    std::int64_t tokens;
    double step, send, exposed;  // ms
  };
  for (const Row& row : {Row{131072, 0.927, 0.168, 0}, Row{32768, 0.0579, 0.0419, 0},
                         Row{8192, 0.00362, 0.01049, 7 * (0.01049 - 0.00362)}}) {
    CAPTURE(row.tokens);
    Scenario scenario = shared_sequence(8, row.tokens);
    on_nodes_of_eight(scenario.cluster, 8);
    const ContextAttention ring(scenario, Topology(scenario.cluster));
    const ContextTensors own = context_tensors(attention_of(scenario), scenario.plan, 1, 2);
    const double step = attention_flops(scenario).step / (0.6 * 989) * 1e9;  // ns
    CHECK(step * 1e-6 == doctest::Approx(row.step).epsilon(2e-3));
    CHECK(ring.hop(own.keys) * 1e-6 == doctest::Approx(row.send).epsilon(2e-3));
    CHECK(std::abs(ring.forward(step, own) * 1e-6 - 8 * row.step - row.exposed) < 0.005);
  }
}
