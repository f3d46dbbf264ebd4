// Experts on devices of their own: who holds what, what is refused and searched.
#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include <doctest/doctest.h>

#include "core/cost/memory_model.hpp"
#include "core/model/families/transformer.hpp"
#include "io/writers/writers.hpp"
#include "planner/answer.hpp"
#include "planner/refusals.hpp"
#include "planner/search/search.hpp"
#include "planner/search/space.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/transformer_block.hpp"

namespace pipewright::tests {
namespace {

// Four blocks with 8 experts each, 2 per token.
Transformer four_blocks() {
  Transformer model;
  model.layers = 4, model.hidden = 512, model.heads = model.key_heads = 8, model.head_size = 64;
  model.feed_forward = 1024, model.gated = true, model.activation = Activation::Silu, model.norm = Norm::Rms;
  model.sequence_length = 256, model.vocabulary = 1024, model.positions = Transformer::Positions::Rotary;
  model.moe = {.experts = 8, .active = 2, .feed_forward = 1024};
  return model;
}

// In bf16 on 8 devices behind a switch.
Scenario experts(std::int64_t copies, std::int64_t e, std::int64_t t = 1, std::int64_t x = 0) {
  Scenario scenario =
      block_scenario({.sequence = 256, .hidden = 512, .heads = 8, .inner = 2048, .flash = true}, 4, 8, {});
  scenario.model = build(four_blocks());
  scenario.cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = Bandwidth{100e9}, .latency = Time{1000}};
  scenario.training.micro_batch_size = Placed<std::int64_t>{2, {}};
  scenario.training.micro_batches = Placed<std::int64_t>{4, {}};
  scenario.plan.data_parallel.value = copies;
  scenario.plan.tensor_parallel.value = t, scenario.plan.sequence_parallel.value = t > 1;
  scenario.plan.expert_parallel = {e, {"s.yaml", 5, 3}};
  scenario.plan.expert_tensor_parallel = {x, {"s.yaml", 6, 3}};
  if (8 % e == 0) settle(scenario.model, Bytes{2}, scenario.plan.split());
  return scenario;
}

MemoryBytes held(const Scenario& scenario) {
  const CostModel cost(scenario);
  const MemoryModel memory = memory_model(find_plan(scenario, cost), cost);
  MemoryBytes sum;
  for (const ChunkMemory& chunk : memory.chunks)
    sum.weights += chunk.weights, sum.gradients += chunk.gradients, sum.optimizer += chunk.optimizer;
  return sum;
}

constexpr std::int64_t kExperts = std::int64_t{4} * 8 * 3 * 512 * 1024;  // parameters

TEST_CASE("a device holds its experts, and a share of their states with those that hold the same") {
  const Bytes all = held(experts(8, 1)).weights, own = held(experts(8, 4)).weights;
  CHECK(all - own == Bytes{2 * (kExperts - kExperts / 4)});
  CHECK(plan_of(experts(8, 4)).expert_copies() == 2);
  // Of 12 B of states: dense ones over 8, those of 2 of 8 experts over 2.
  Scenario zero = experts(8, 4);
  zero.training.optimizer = Optimizer::Adam, zero.training.zero = 1;
  const std::int64_t dense = all.value / 2 - kExperts;
  CHECK(held(zero).optimizer == Bytes{12 * (dense / 8 + kExperts / 4 / 2)});
  zero.training.zero = 3;
  CHECK(held(zero).weights == Bytes{2 * (dense / 8 + kExperts / 4 / 2)});
  // Tensor parallelism of 2 with whole experts: 8 devices hold them once.
  CHECK(plan_of(experts(4, 8, 2, 1)).expert_copies() == 1);
  CHECK(plan_of(experts(4, 2, 2)).expert_copies() == 2);
}

// What Megatron-LM keeps of a block beside what operators do, and with selective recomputation.
struct Beside {
  Bytes kept, selective;
};
Beside beside_operators(Scenario scenario, bool gated) {
  Transformer model = four_blocks();
  model.gated = gated;
  scenario.model = build(model);
  settle(scenario.model, Bytes{2}, scenario.plan.split());
  const auto block = [](const Scenario& of) {
    const LayerCosts costs = CostModel(of).layers(2);
    return Beside{costs.stash[1], costs.selective[1]};
  };
  const Beside operators = block(scenario);
  scenario.training.framework.tensors = FrameworkTensors::Megatron;
  const Beside megatron = block(scenario);
  return {megatron.kept - operators.kept, megatron.selective - operators.selective};
}

TEST_CASE("experts without a gate keep their activation beside its product with the router's shares") {
  Scenario scenario = experts(8, 4);
  // 2 samples of 256 tokens to 2 experts each: 1024 rows of 1024 values of 2 B.
  constexpr Bytes kRows{2 * 1024 * 1024};
  const auto more = [&] {
    const Beside without = beside_operators(scenario, false), with = beside_operators(scenario, true);
    return Beside{without.kept - with.kept, without.selective - with.selective};
  };
  CHECK(more().kept == kRows);
  CHECK(more().selective == kRows);
  scenario.plan.recompute_modules = Modules{Module::ExpertActivation};
  CHECK(more().kept == kRows);
  CHECK(more().selective == Bytes{});
  scenario.plan.expert_imbalance.value = 1.5;
  CHECK(more().kept == Bytes{kRows.value * 3 / 2});
}

TEST_CASE("tokens that are sent take time, and uneven ones more") {
  Scenario scenario = experts(8, 8);
  const auto step = [&] { return priced(scenario).report.step_time; };
  const Time even = step();
  scenario.plan.expert_imbalance.value = 1.5;
  CHECK(step() > even);
  scenario.plan.expert_imbalance.value = 1;
  const Bytes stash = priced(scenario).report.workers.front().memory.bytes.stash;
  scenario.plan.expert_imbalance_memory = Placed<double>{2, {}};
  CHECK(priced(scenario).report.workers.front().memory.bytes.stash > stash);
  CHECK(step() == even);
}

// Weights of experts take longer to read than their tokens to compute: alone, a device reads all of them for each
// micro-batch.
TEST_CASE("experts that get more tokens at once than alone make more of a device, and the report says so") {
  const auto report = [](std::int64_t e) {
    Scenario scenario = experts(8, e);
    scenario.cluster.device.memory_bandwidth = Bandwidth{1e11};
    scenario.cluster.links = {.kind = LinkKind::Ideal};
    return std::get<Answer>(answer(scenario, {.ignore_memory = true}));
  };
  const Answer divided = report(8), whole = report(1);
  CHECK(divided.report.scaling_efficiency > 1);
  CHECK(divided.report.references.front().note ==
        "whether or not the model fits on it; its experts get the tokens of 1 micro-batch at once, those of the plan "
        "of 8, "
        "so that the plan can be faster than as many such devices");
  CHECK(terminal_report(divided, {.width = 1000})
            .find(" of 8 workers; alone, experts get the tokens of 1 micro-batch at once, here of 8)") !=
        std::string::npos);
  CHECK(whole.report.scaling_efficiency <= 1);
  CHECK(whole.report.references.front().note == "whether or not the model fits on it");
  CHECK(terminal_report(whole, {.width = 1000}).find("; alone, experts") == std::string::npos);
  CHECK(plan_of(experts(4, 8, 2, 1)).micro_batches_at_expert() == 4);
  CHECK(plan_of(experts(4, 2, 2)).micro_batches_at_expert() == 2);
}

TEST_CASE("a capacity bounds time and memory of uneven tokens, and says what it drops") {
  Scenario scenario = experts(8, 8);
  const auto report = [&] { return std::get<Answer>(answer(scenario)).report; };
  const auto warned = [&](std::string_view begin) {
    return std::ranges::any_of(report().warnings, [&](const std::string& line) { return line.starts_with(begin); });
  };
  const auto at = [&](double imbalance) {
    scenario.plan.expert_capacity.reset(), scenario.plan.expert_padding = false;
    scenario.plan.expert_imbalance.value = imbalance;
    return report();
  };
  const Report at_limit = at(1.25), uneven = at(2);
  scenario.plan.expert_capacity = Placed<double>{1.25, {}};
  const auto same = [](const Report& a, const Report& b) {
    return a.step_time == b.step_time && a.workers.front().memory.bytes.stash == b.workers.front().memory.bytes.stash;
  };
  const Report limited = report();
  CHECK(same(limited, at_limit));
  CHECK_FALSE(same(limited, uneven));
  CHECK(warned("plan.expert_capacity drops at least 38 % of the tokens that the fullest device gets"));
  scenario.plan.expert_imbalance.value = 1, scenario.plan.expert_padding = true;
  CHECK(same(report(), at_limit));
  scenario.plan.expert_padding = false;
  CHECK(warned("plan.expert_capacity has no effect: no device gets more tokens"));
  scenario.plan.shared_experts_beside.value = true;
  CHECK(warned("plan.shared_experts_beside has no effect: the model has no shared experts"));
  scenario.plan.pairs.value = Pairs::Fused;
  CHECK(error_of(scenario).find("plan.shared_experts_beside: fills the time of exchanges") != std::string::npos);
  scenario.plan.pairs.value = Pairs::Serial, scenario.plan.shared_experts_beside.value = false;
  scenario.plan.expert_capacity.reset(), scenario.plan.expert_padding = true;
  CHECK(error_of(scenario).find("plan.expert_padding: fills experts up to a capacity that is not given; write "
                                "plan.expert_capacity: 1.25") != std::string::npos);
}

TEST_CASE("what cannot divide experts is refused, with a way out") {
  CHECK(error_of(experts(8, 3)) ==
        "s.yaml:5:3: plan.expert_parallel: 3 does not divide the 8 experts of layer \"block.0\"; use 1, 2, 4 or 8");
  CHECK(error_of(experts(6, 4)) ==
        "s.yaml:5:3: plan.expert_parallel: 4 x 1 devices of an expert = 4 does not divide the 6 devices of a stage "
        "(tensor_parallel x context_parallel x data_parallel); use 1, 2, 3 or 6");
  // 16 devices in two stages, t = c = D = 2: of the 8 of a stage 16 can't hold experts of their own.          [Megatron26]
  Scenario scenario = experts(2, 1, 2, 1);
  Transformer of_16 = four_blocks();
  of_16.moe.experts = 16;
  scenario.model = build(of_16);
  scenario.cluster.devices_per_node = 16;
  scenario.plan.stages.value = 2, scenario.plan.context_parallel.value = 2;
  scenario.plan.expert_parallel.value = 4;
  settle(scenario.model, Bytes{2}, scenario.plan.split());
  CHECK(plan_of(scenario).expert_copies() == 2);
  scenario.plan.expert_parallel.value = 16;
  settle(scenario.model, Bytes{2}, scenario.plan.split());
  CHECK(error_of(scenario) ==
        "s.yaml:5:3: plan.expert_parallel: 16 x 1 devices of an expert = 16 does not divide the 8 devices of a stage "
        "(tensor_parallel x context_parallel x data_parallel); use 1, 2, 4 or 8");
  scenario = experts(4, 8, 2, 1);
  scenario.plan.sequence_parallel.value = false;
  CHECK(error_of(scenario).find("plan.expert_parallel: with tensor_parallel needs sequence_parallel") !=
        std::string::npos);
  scenario = experts(8, 8);
  scenario.plan.shard = Placed<std::int64_t>{4, {}};
  scenario.training.zero = 1;
  CHECK(error_of(scenario).find("leave plan.data_parallel_shard out") != std::string::npos);
  scenario = experts(8, 8);
  scenario.cost = CostSourceKind::Uniform;
  CHECK(error_of(scenario).find("which only cost: roofline and a profile calibrated with as many devices can price") !=
        std::string::npos);
  const auto by_profile = [&](const std::function<void(PlanRequest&)>& change) {
    scenario = experts(8, 8);
    scenario.cost = CostSourceKind::Profile;
    change(scenario.plan);
    const std::optional<Refusal> why = expert_refusal(scenario);
    return why ? why->key + ": " + why->why : "";
  };
  CHECK(by_profile([](PlanRequest&) {}) == "");
  CHECK(by_profile([](PlanRequest& plan) { plan.expert_exchange.value = ExpertExchange::AllGather; }) ==
        "expert_exchange: a profile prices all_to_all alone; write that, or cost: roofline");
  CHECK(by_profile([](PlanRequest& plan) {
          plan.expert_imbalance.value = 1.5;
        }).starts_with("expert_imbalance: is not what a run was measured with"));
  CHECK(by_profile([](PlanRequest& plan) {
          plan.expert_capacity = Placed<double>{2, {}};
        }).starts_with("expert_capacity: is not what a run was measured with"));
  CHECK(by_profile([](PlanRequest& plan) {
          plan.context_parallel.value = 2;
        }).starts_with("context_parallel: is not priced by a profile together with expert_parallel"));
  CHECK(error_of(experts(8, 2, 1, 3)) ==
        "s.yaml:6:3: plan.expert_tensor_parallel: 3 does not divide the 1024 inner features of an expert; use 1, 2, 4 "
        "or 8");
  scenario = experts(1, 2, 8, 1);
  CHECK(error_of(scenario).find("leaves 4 devices of a group that hold the same experts") != std::string::npos);
  scenario = experts(8, 1'000'000'000);
  CHECK(error_of(scenario).find("does not divide the 8 experts") != std::string::npos);
  scenario = experts(8, 8);
  scenario.plan.placement = std::vector<std::int64_t>{0, 1, 2, 3};
  CHECK(error_of(scenario).find("plan.placement") != std::string::npos);
  scenario.plan.placement = std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 6};
  CHECK(error_of(scenario).find("device 6 is given twice") != std::string::npos);
  Scenario dense = block_scenario({.sequence = 256, .hidden = 512, .heads = 8, .inner = 2048, .flash = true}, 4, 8, {});
  dense.training.micro_batch_size = dense.training.micro_batches = Placed<std::int64_t>{2, {}};
  dense.plan.data_parallel.value = 8, dense.plan.expert_parallel = {8, {"s.yaml", 5, 3}};
  CHECK(error_of(dense) == "s.yaml:5:3: plan.expert_parallel: divides experts, and the model has none; leave it out");
}

TEST_CASE("the search opens expert parallelism, and finds the best of its plans") {
  Scenario scenario = experts(8, 1);
  scenario.training.global_batch_size = Placed<std::int64_t>{16, {}};
  scenario.training.micro_batches.reset();
  scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  for (const char* key : {"stages", "data_parallel", "expert_parallel"})
    scenario.plan.open[key] = {};
  const Space space = layouts_of(scenario);
  std::set<int> degrees;
  double best = 0;
  for (const LayoutGroup& group : space.groups)
    for (const Layout& layout : members(group)) {
      degrees.insert(layout.expert_parallel);
      CHECK(layout.data_parallel % layout.expert_parallel == 0);
      best = std::max(best, priced(settled(scenario, layout, nullptr)).report.samples_per_s);
    }
  CHECK(degrees == std::set<int>{1, 2, 4, 8});
  const auto found = search(scenario, {.top = 1, .gap = 0, .most_simulations = 10'000});
  REQUIRE(std::holds_alternative<SearchAnswer>(found));
  const SearchAnswer& answer = std::get<SearchAnswer>(found);
  CHECK(answer.plans.front().report.samples_per_s >= best * (1 - 1e-9));
  CHECK(1 / answer.bound >= answer.plans.front().report.samples_per_s * (1 - 1e-9));
}

TEST_CASE("of plans on several nodes, each has the exchange of its own devices") {
  // Groups of 4 on nodes of 4 behind slow NICs: beside each other or, with stages between, on several nodes.
  Scenario scenario = experts(8, 1);
  scenario.cluster.devices_per_node = 4, scenario.cluster.nodes = 4;
  scenario.cluster.network.emplace();
  scenario.cluster.network->bandwidth = Bandwidth{5e9};
  scenario.cluster.network->per = NicPer::Device;
  scenario.training.global_batch_size = Placed<std::int64_t>{32, {}};
  scenario.training.micro_batches.reset();
  scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  for (const char* key : {"stages", "data_parallel", "expert_parallel", "placement"})
    scenario.plan.open[key] = {};
  double best = 0;
  for (const LayoutGroup& group : layouts_of(scenario).groups)
    for (const Layout& layout : members(group))
      best = std::max(best, priced(settled(scenario, layout, nullptr)).report.samples_per_s);
  const auto found = search(scenario, {.top = 1, .gap = 0, .most_simulations = 10'000});
  REQUIRE(std::holds_alternative<SearchAnswer>(found));
  const SearchAnswer& answer = std::get<SearchAnswer>(found);
  CHECK(answer.plans.front().report.samples_per_s >= best * (1 - 1e-9));
  CHECK(1 / answer.bound >= answer.plans.front().report.samples_per_s * (1 - 1e-9));
  CHECK(priced(*answer.plans.front().scenario).report.samples_per_s ==
        doctest::Approx(answer.plans.front().report.samples_per_s).epsilon(1e-9));
}

TEST_CASE("a fixed number that divides nothing is refused at once, with its place") {
  Scenario scenario = experts(8, 3);
  scenario.plan.open["stages"] = {};
  CHECK_THROWS_WITH_AS(search(scenario, {}), doctest::Contains("s.yaml:5:3: plan.expert_parallel: 3 does not divide"),
                       InputError);
}

}  // namespace
}  // namespace pipewright::tests
