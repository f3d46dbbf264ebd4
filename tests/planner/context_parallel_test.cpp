// Copies that divide the tokens of the same samples: where they stand, what they exchange, what is refused and searched.
#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include <doctest/doctest.h>

#include "core/cost/context_exchange.hpp"
#include "core/cost/memory_model.hpp"
#include "core/cost/state_exchange.hpp"
#include "core/model/each_device.hpp"
#include "core/question/profile.hpp"
#include "planner/answer.hpp"
#include "planner/refusals.hpp"
#include "planner/search/search.hpp"
#include "planner/search/space.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/transformer_block.hpp"

namespace pipewright::tests {
namespace {

// Four blocks in bf16 on 8 devices behind a switch; 256 tokens, 8 heads.
Scenario blocks(std::int64_t stages, std::int64_t copies, std::int64_t context, int devices = 8) {
  Scenario scenario = block_scenario({.sequence = 256, .hidden = 512, .heads = 8, .inner = 2048, .flash = true}, 4,
                                     devices, {1, false});
  scenario.cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = Bandwidth{100e9}, .latency = Time{1000}};
  scenario.training.micro_batch_size = Placed<std::int64_t>{2, {}};
  scenario.training.micro_batches = Placed<std::int64_t>{4, {}};
  scenario.plan.stages.value = stages;
  scenario.plan.data_parallel.value = copies;
  scenario.plan.context_parallel = {context, {"s.yaml", 5, 3}};
  scenario.plan.context_exchange.place = {"s.yaml", 6, 3};
  return scenario;
}

TEST_CASE("devices that share a sequence lie next to each other, whatever the order of copies and stages") {
  Scenario scenario = blocks(2, 2, 2);
  Plan plan = plan_of(scenario);
  // Copies (share of the batch, part of the sequence): (0, 0), (0, 1), (1, 0), (1, 1); two stages each.
  CHECK(plan.device == std::vector<DeviceId>{0, 2, 1, 3, 4, 6, 5, 7});
  CHECK(plan.copies() == 4);
  CHECK(plan.devices() == 8);
  CHECK(plan.global_batch_size == 2 * 4 * 2);  // parts of a sequence have no samples of their own
  scenario.plan.placement = PlacementOrder::Data;
  CHECK(plan_of(scenario).device == std::vector<DeviceId>{0, 4, 1, 5, 2, 6, 3, 7});
}

TEST_CASE("gradients are reduced over copies and parts of sequences, and states divided among both") {
  Scenario scenario = blocks(2, 2, 2);
  const CostModel cost(scenario);
  const Plan plan = find_plan(scenario, cost);
  CHECK(plan.seating().members(0) == 4);
  const StateExchange exchange(plan, 0, cost);
  CHECK(exchange.groups().front().members() == 4);
  CHECK(plan.sharded_over(0) == 4);
  scenario.training.zero = 1;
  const CostModel sharded(scenario);
  const MemoryModel whole = memory_model(plan, cost), divided = memory_model(plan, sharded);
  CHECK(divided.chunks[0].optimizer.value * 4 == whole.chunks[0].optimizer.value);
  scenario.plan.shard = Placed<std::int64_t>{1, {}};
  CHECK(plan_of(scenario).sharded_over(0) == 2);  // with those that share its sequences
  scenario.plan.shard.reset();
  scenario.training.zero = 3;
  scenario.plan.data_parallel.value = 1;  // nothing else to divide among
  CHECK(plan_of(scenario).resharding.has_value());
}

TEST_CASE("a part of a sequence sends and keeps a part of the tensors") {
  Scenario of_half = blocks(2, 1, 2);
  of_half.cluster.links.kind = LinkKind::Ideal;  // such short sequences do not pay for reducing gradients
  const Answer whole = priced(blocks(2, 1, 1)), half = priced(of_half);
  REQUIRE(!whole.timeline.transfers.empty());
  CHECK(half.timeline.transfers.front().bytes.value * 2 == whole.timeline.transfers.front().bytes.value);
  CHECK(half.report.workers.front().memory.bytes.stash.value * 2 ==
        whole.report.workers.front().memory.bytes.stash.value);
  CHECK(half.report.workers.front().memory.bytes.weights == whole.report.workers.front().memory.bytes.weights);
  CHECK(half.report.step_time < whole.report.step_time);
  // Samples per second count whole sequences; MFU all devices.
  CHECK(half.report.samples_per_s == doctest::Approx(8 / seconds(half.report.step_time)));
}

TEST_CASE("one stretch of tokens takes longer than chunks from both ends") {
  Scenario scenario = blocks(1, 1, 4);
  scenario.cluster.device.memory_bandwidth = Bandwidth{1e18};  // arithmetic alone
  const Time zigzag = priced(scenario).report.step_time;
  scenario.plan.context_split.value = ContextSplit::Contiguous;
  CHECK(priced(scenario).report.step_time > zigzag);
}

TEST_CASE("what cannot share sequences is refused, with a way out") {
  CHECK(error_of(blocks(1, 1, 3)) ==
        "s.yaml:5:3: plan.context_parallel: 3 cuts 256 tokens into 6 parts, which are not equal; use 1, 2, 4 or "
        "8");
  Scenario scenario = blocks(2, 2, 4);
  CHECK(error_of(scenario) ==
        "s.yaml:5:3: plan: needs 2 x 2 x 4 (context_parallel) = 16 devices, the cluster has 8; use fewer stages, "
        "replicas or copies, a smaller context_parallel, or a larger cluster");
  scenario = blocks(1, 1, 16, 16);
  scenario.plan.context_exchange.value = ContextExchange::AllToAll;
  CHECK(
      error_of(scenario) ==
      "s.yaml:6:3: plan.context_exchange: gives each of 16 devices a part of the heads, but 8 heads and 8 key heads do "
      "not divide by 16; use ring, all_gather, or context_parallel: 1, 2, 4 or 8");
  scenario.plan.tensor_parallel.value = 2;
  CHECK(context_refusal(scenario)->why.ends_with(
      "16 x 2 (tensor_parallel); use ring, all_gather, or context_parallel: 1, "
      "2 or 4"));
  scenario.plan.context_exchange.value = ContextExchange::TwoLevel;
  scenario.plan.context_parallel.value = 8, scenario.plan.context_inner = Placed<std::int64_t>{8, {}};
  CHECK(context_refusal(scenario)->why.ends_with("; use ring, all_gather, or context_inner: 1, 2 or 4"));
  scenario = blocks(1, 1, 4);
  scenario.plan.context_exchange.value = ContextExchange::TwoLevel;
  CHECK(error_of(scenario).find("plan.context_inner: is missing") != std::string::npos);
  scenario.plan.context_inner = Placed<std::int64_t>{3, {"s.yaml", 7, 3}};
  CHECK(error_of(scenario) ==
        "s.yaml:7:3: plan.context_inner: 3 does not divide plan.context_parallel: 4; use 1, 2 or 4");
  scenario.plan.context_exchange.value = ContextExchange::Ring;
  CHECK(error_of(scenario).find("belongs to context_exchange: two_level") != std::string::npos);
  scenario = blocks(1, 1, 2);
  scenario.cost = CostSourceKind::Uniform;
  CHECK(error_of(scenario).find("which only cost: roofline and a profile calibrated with as many devices can price") !=
        std::string::npos);
  const auto refused = [&] {
    const std::optional<Refusal> why = context_refusal(scenario);
    return why ? why->key + ": " + why->why : "";
  };
  scenario.cost = CostSourceKind::Profile;
  scenario.plan.context_exchange.value = ContextExchange::AllGather;
  CHECK(refused() == "context_exchange: a profile prices rings alone; write ring, or cost: roofline");
  scenario.plan.context_exchange.value = ContextExchange::Ring, scenario.plan.context_imbalance.value = 1.5;
  CHECK(refused().starts_with("context_imbalance: is not what a run was measured with"));
  scenario.plan.context_imbalance.value = 1, scenario.plan.context_split.value = ContextSplit::Contiguous;
  CHECK(refused().starts_with("context_split: contiguous parts differ in work"));
  scenario = blocks(1, 1, 2);
  scenario.cost = CostSourceKind::Profile;
  MachineProfile profile;
  profile.name = "here";
  for (const Work& work : of_parts(scenario.model, 2).works)
    profile.layers.push_back({describe(*work.program.get()), 1});
  scenario.profile = std::make_shared<const MachineProfile>(profile);
  CHECK(refused() == "");
  profile.layers.pop_back();
  scenario.profile = std::make_shared<const MachineProfile>(profile);
  CHECK(
      refused() ==
      "context_parallel: 2: profile \"here\" lacks layers of this model as each of 2 devices computes them; calibrate "
      "a scenario with that, too, or leave it out");
  Scenario scores = block_scenario({.sequence = 256, .hidden = 512, .heads = 8, .inner = 2048}, 4, 8, {});
  scores.training.micro_batch_size = scores.training.micro_batches = Placed<std::int64_t>{2, {}};
  scores.plan.context_parallel.value = 2;
  CHECK(error_of(scores).find("needs whole sequences; use 1, or model.attention: flash") != std::string::npos);
  Scenario mixers = blocks(1, 1, 2);  // a convolution over tokens, and the scan behind it
  mixers.model.works[0].operators.push_back({.name = "conv1d", .kind = OperatorKind::GroupedConvolution});
  CHECK(error_of(mixers).find("\"conv1d\" of layer \"") != std::string::npos);
  CHECK(error_of(mixers).find("needs whole sequences; use 1") != std::string::npos);
}

TEST_CASE("lists of devices that repeat or overlap are refused, as without context parallelism") {
  Scenario scenario = blocks(1, 1, 2);
  scenario.plan.placement = std::vector<std::int64_t>{0, 0};
  CHECK(error_of(scenario).find("device 0 is given twice") != std::string::npos);
  scenario.plan.tensor_parallel.value = 2;
  settle(scenario.model, Bytes{2}, {2, false});
  scenario.plan.placement = std::vector<std::int64_t>{0, 1};
  CHECK(error_of(scenario).find("device 1 belongs to two workers") != std::string::npos);
}

TEST_CASE("replicas that are left open make one copy: what asks for several is refused") {
  for (const char* key : {"data_parallel", "context_parallel"}) {
    Scenario scenario = blocks(1, 1, 1);
    scenario.plan.open["replicas"] = {};
    Placed<std::int64_t>& count =
        key == std::string("data_parallel") ? scenario.plan.data_parallel : scenario.plan.context_parallel;
    count = {2, {"s.yaml", 5, 3}};
    CHECK_THROWS_WITH_AS(search(scenario, {}),
                         doctest::Contains("2, but replicas that are left open make one pipeline"), InputError);
  }
  Scenario scenario = blocks(1, 1, 1);
  scenario.plan.open["replicas"] = {}, scenario.plan.open["context_parallel"] = {};
  CHECK(std::holds_alternative<SearchAnswer>(search(scenario, {.top = 1, .time_limit = 60})));
}

TEST_CASE("a fixed number that divides nothing is refused at once, with its place") {
  Scenario scenario = blocks(1, 1, 3);
  scenario.plan.open["stages"] = {};
  CHECK_THROWS_WITH_AS(search(scenario, {}), doctest::Contains("s.yaml:5:3: plan.context_parallel: 3 cuts 256 tokens"),
                       InputError);
}

TEST_CASE("the search opens context parallelism, and finds the best of its plans") {
  Scenario scenario = blocks(1, 1, 1);
  scenario.training.global_batch_size = Placed<std::int64_t>{4, {}};
  scenario.training.micro_batches.reset();
  scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  for (const char* key : {"stages", "data_parallel", "context_parallel"})
    scenario.plan.open[key] = {};
  const Space space = layouts_of(scenario);
  std::set<int> contexts;
  double best = 0;
  for (const LayoutGroup& group : space.groups)
    for (const Layout& layout : members(group)) {
      contexts.insert(layout.context_parallel);
      CHECK(layout.devices() <= 8);
      best = std::max(best, priced(settled(scenario, layout, nullptr)).report.samples_per_s);
    }
  CHECK(contexts == std::set<int>{1, 2, 4, 8});
  const auto found = search(scenario, {.top = 1, .gap = 0, .most_simulations = 10'000});
  REQUIRE(std::holds_alternative<SearchAnswer>(found));
  const SearchAnswer& answer = std::get<SearchAnswer>(found);
  CHECK(answer.plans.front().report.samples_per_s >= best * (1 - 1e-9));
  CHECK(1 / answer.bound >= answer.plans.front().report.samples_per_s * (1 - 1e-9));
  CHECK(answer.plans.front().layout.context_parallel == answer.plans.front().plan.context_parallel);
}

TEST_CASE("parts of sequences that run alike are simulated once") {
  Scenario scenario = blocks(1, 16, 8, 8);
  scenario.cluster.nodes = 16;
  scenario.cluster.network.emplace();
  scenario.cluster.network->bandwidth = Bandwidth{50e9};
  const Answer answer = priced(scenario);
  CHECK(answer.plan.devices() == 128);
  REQUIRE(answer.costs.fold != nullptr);
  CHECK(answer.costs.fold->copies.size() < 16);
}

}  // namespace
}  // namespace pipewright::tests
