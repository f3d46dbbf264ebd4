// training.zero: 1: gradients are scattered before the update, weights gathered behind it or beside the next forwards.
#include <doctest/doctest.h>

#include "core/cost/state_exchange.hpp"
#include "core/cost/step_pricer.hpp"
#include "io/read/read_scenario.hpp"
#include "planner/price.hpp"
#include "planner/search/search.hpp"
#include "sim/compiled_order.hpp"
#include "sim/schedules/table.hpp"
#include "tests/io/scratch.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/planner/sharded_scenario.hpp"

using namespace pipewright::tests;

namespace {

// Two blocks on two stages, in four copies, on one node of 8 with ports of 100 GB/s: 8 GB of gradients each in fp32, and
// 4 GB of weights in bf16.
Scenario two_stages() {
  Scenario scenario = sharded(2, 4, 1, 1);
  scenario.cluster.devices_per_node = 8;
  scenario.plan.stages.value = 2;
  scenario.plan.placement = PlacementOrder::Data;
  scenario.training.precision = Precision::Bf16, scenario.training.gradient_precision = Precision::Fp32;
  for (Layer& layer : scenario.model.layers)
    layer.parameters = 2'000'000'000, layer.activation = Bytes{};
  return scenario;
}

constexpr Time ms(std::int64_t count) {
  return Time{count * 1'000'000};
}

}  // namespace

// A member passes on 3/4 of 8 GB before the update, in 60 ms, and 3/4 of 4 GB behind it, in 30 ms. Stage 1 ends first, after
// 3 + 3 + 6 ms; stage 0 6 ms later.
TEST_CASE("ZeRO-1 by hand: 8 GB scattered in 60 ms, 4 GB gathered in 30 ms") {
  Scenario scenario = two_stages();
  const CostModel cost(scenario);
  const Plan plan = find_plan(scenario, cost);
  const StateExchange exchange(plan, 0, cost);
  CHECK(exchange.reduce({Bytes{8'000'000'000}, {}}).time == ms(60));
  const StateExchange::Share weights = gathered_weights(plan, 0, plan.layers[0], scenario);
  CHECK(weights.all == Bytes{4'000'000'000});
  CHECK(exchange.gather(weights).time == ms(30));
  const Answer answer = priced(scenario);
  CHECK(answer.report.step_time == ms(3 + 3 + 6 + 6 + 60 + 30));
  const Lane& lane = answer.schedule.positions[0];
  REQUIRE(lane.communication[kGathers].size() == 1);
  CHECK(label(lane.communication[kGathers][0]) == "0AG0");
  const LaneTimes& times = answer.timeline.workers[0];
  CHECK(times.communication[kGathers][0] == Span{ms(78), ms(108)});
  CHECK(answer.report.workers[0].idle.communication == ms(60 + 30));
  // All-reduced, both halves are of gradients.
  scenario.training.zero = 0;
  CHECK(step_of(scenario) == ms(3 + 3 + 6 + 6 + 120));
}

// Blocks of 400 MB of gradients in two copies: a scatter of 2 ms each, of which the last shows; 800 MB of weights in bf16 take
// 4 ms behind the update, in fp32 8.
TEST_CASE("ZeRO-1: buckets hide in the backward, what is gathered does not") {
  Scenario scenario = sharded(4, 2, 1, 1);
  CHECK(step_of(scenario) == ms(4 * 3 + 4 * 6 + 2 + 8));
  scenario.training.precision = Precision::Bf16, scenario.training.gradient_precision = Precision::Fp32;
  CHECK(step_of(scenario) == ms(4 * 3 + 4 * 6 + 2 + 4));
  scenario.training.micro_batches->value = 3;  // the last alone is reduced
  const Answer answer = priced(scenario);
  CHECK(answer.report.step_time == ms(3 * 36 + 2 + 4));
  CHECK(answer.schedule.positions[0].communication[kReductions].size() == 4);
}

// Gathers of 2 ms, forwards of 3: the first shows. Gathers of 4 ms: 4 * 4, then the last forward.
TEST_CASE("overlap_param_gather: each bucket is there before its layers' forward") {
  Scenario scenario = sharded(4, 2, 1, 1);
  scenario.plan.overlap_param_gather.value = true;
  const Answer answer = priced(scenario);
  CHECK(answer.report.step_time == ms(2 + 4 * 3 + 4 * 6 + 2));
  const LaneTimes& times = answer.timeline.workers[0];
  CHECK(times.communication[kGathers] == std::vector<Span>{{ms(0), ms(2)}, {ms(2), ms(8)}});
  CHECK(times.compute[0] == Span{ms(2), ms(14)});
  scenario.training.micro_batches->value = 3;
  CHECK(step_of(scenario) == ms(2 + 3 * 36 + 2));
  scenario.training.micro_batches->value = 1;
  for (Layer& layer : scenario.model.layers)
    layer.parameters *= 2;
  CHECK(step_of(scenario) == ms(4 * 4 + 3 + 4 * 6 + 4));
  // One bucket of all hides nothing of what it gathers.
  scenario.plan.bucket = Bytes{1'000'000'000'000};
  CHECK(step_of(scenario) == ms(16 + 4 * 3 + 4 * 6 + 16));
}

// Two chunks on each of two stages, gathers of 2 ms each: the second chunk's comes while the first one's forwards run; stage 1
// waits for its input anyway.
TEST_CASE("overlap_param_gather: later chunks hide behind the forwards of earlier ones") {
  Scenario scenario = sharded(4, 2, 2, 1);
  scenario.cluster.devices_per_node = 4;
  scenario.plan.stages.value = 2, scenario.plan.virtual_stages.value = 2;
  scenario.plan.schedule.value = "interleaved_1f1b";
  scenario.plan.placement = PlacementOrder::Data;
  for (Layer& layer : scenario.model.layers)
    layer.activation = Bytes{};
  const Answer behind = priced(scenario);
  scenario.plan.overlap_param_gather.value = true;
  const Answer beside = priced(scenario);
  const auto& gathers = beside.timeline.workers[0].communication[kGathers];
  REQUIRE(gathers.size() == 4);
  CHECK(beside.timeline.workers[0].compute[0].start == ms(2));
  CHECK(gathers[3].end == ms(4));
  // What is gathered behind the update of two chunks, 4 ms, against 2 ms before the first forward.
  CHECK(behind.report.step_time - beside.report.step_time == ms(2));
}

TEST_CASE("ZeRO-1: the compiled order and the pricer's tail know the gather") {
  for (const bool beside : {false, true}) {
    Scenario scenario = two_stages();
    scenario.plan.overlap_param_gather.value = beside;
    scenario.training.micro_batches->value = 3;
    const CostModel cost(scenario);
    const Plan plan = find_plan(scenario, cost);
    const Answer answer = price(plan, cost, Engine::Auto);
    StepPricer pricer(plan, cost);
    const StepCosts costs = pricer.costs(plan.layers, plan.recompute);
    Makespans makespans(*find_schedule(plan.schedule));
    for (int again = 0; again < 3; ++again)
      CHECK(makespans(costs) == answer.report.step_time);
    CHECK(pricer.tail(0, plan.layers[0]) == ms(beside ? 60 : 60 + 30));
  }
}

// Two chunks on each of two stages, of four blocks: 60 ms are gathered behind the updates of a stage. Of a cut that gives one
// chunk two blocks more is gathered, not less.
TEST_CASE("ZeRO-1: the bound knows what is gathered behind the last update") {
  Scenario scenario = two_stages();
  scenario.model.layers.insert(scenario.model.layers.end(), 2, scenario.model.layers[0]);
  for (LayerId i = 0; i < 4; ++i) {
    scenario.model.layers[i].name += std::to_string(i), scenario.model.layers[i].inputs.clear();
    if (i > 0) scenario.model.layers[i].inputs = {i - 1};
  }
  scenario.plan.virtual_stages.value = 2, scenario.plan.schedule.value = "interleaved_1f1b";
  scenario.training.micro_batches->value = 2;
  const auto behind = [&] {
    const CostModel cost(scenario);
    return StepPricer(find_plan(scenario, cost), cost).least_gathers_behind();
  };
  CHECK(behind() == ms(60));
  scenario.model.layers[2].parameters = 1'000'000'000;
  CHECK(behind() == ms(45));
  scenario.plan.overlap_param_gather.value = true;
  CHECK(behind() == Time{});
  scenario.plan.overlap_param_gather.value = false, scenario.training.zero = 0;
  CHECK(behind() == Time{});
}

TEST_CASE("ZeRO-1 among half of the copies: gathered inside the groups, reduced between them, too") {
  Scenario scenario = two_stages();
  scenario.plan.shard = Placed<std::int64_t>{2, {}};
  const CostModel cost(scenario);
  const Plan plan = find_plan(scenario, cost);
  const StateExchange exchange(plan, 0, cost);
  CHECK(exchange.reduce({Bytes{8'000'000'000}, {}}).time == ms(40 + 40));
  CHECK(exchange.gather({Bytes{4'000'000'000}, {}}).time == ms(20));
}

// An adapter's weights are gathered, not the frozen ones.
TEST_CASE("ZeRO-1 gathers what is trained") {
  Scenario scenario = two_stages();
  scenario.model.layers[0].trained_on_device = 1'000'000;
  const CostModel cost(scenario);
  const Plan plan = find_plan(scenario, cost);
  CHECK(gathered_weights(plan, 0, plan.layers[0], scenario).all == Bytes{2'000'000});
}

TEST_CASE("overlap_param_gather is refused where nothing is gathered so, and where holders read in different orders") {
  Scenario scenario = sharded(4, 2, 4, 1);
  scenario.plan.overlap_param_gather = Placed<bool>{true, Place{"s.yaml", 3, 3}};
  CHECK(error_of(scenario) == "no error");
  scenario.training.zero = 0;
  CHECK(error_of(scenario) ==
        "s.yaml:3:3: plan.overlap_param_gather: each copy updates all weights with training.zero: 0; write 1, or leave "
        "this "
        "out");
  scenario.training.zero = 2;
  CHECK(error_of(scenario) ==
        "s.yaml:3:3: plan.overlap_param_gather: with training.zero: 2 weights are gathered beside other ops anyway; "
        "write 1, "
        "or leave this out");
  scenario.training.zero = 1;
  scenario.cluster.devices_per_node = 8;
  scenario.plan.stages.value = 4;
  scenario.plan.schedule.value = "dualpipe";
  scenario.training.micro_batches->value = 8;
  CHECK(error_of(scenario).find("run different micro-batches") != std::string::npos);
  scenario.plan.schedule.value = "pipedream";
  CHECK(error_of(scenario).find("while others run") != std::string::npos);
}

// Both holders of a chunk gather it, in one order.
TEST_CASE("ZeRO-1 both ways: every holder gathers what it holds, behind its update") {
  Scenario scenario = sharded(4, 2, 8, 1);
  scenario.cluster.devices_per_node = 8;
  scenario.plan.stages.value = 4;
  scenario.plan.schedule.value = "dualpipe";
  const Answer answer = priced(scenario);
  for (const Lane& lane : answer.schedule.positions)
    CHECK(lane.communication[kGathers].size() == 2);
  CHECK(validate(answer.schedule) == "");
}

// Copies that divide nothing, and one copy, would else be refused, and the fastest plan, four stages, with them.
TEST_CASE("overlap_param_gather with zero left open holds where optimizer states are divided, and leaves nothing out") {
  const auto fastest = [](const std::string& zero, const std::string& overlap) {
    const Scratch scratch;
    const Scenario scenario = read_scenario(
        scratch.write(
            "x.yaml",
            "model: {layers: [{name: a, repeat: 4, forward: 300 us, backward: 600 us, activation: 1 kB, "
            "parameters: 40000000}]}\n"
            "cluster: {nodes: 1, node: {devices: 4, device: {memory: 16 GB, memory_bandwidth: 1 TB/s}, links: "
            "{kind: mesh, bandwidth: 5 GB/s}}}\n"
            "training: {micro_batch_size: 8, global_batch_size: 64, optimizer: adam, zero: " +
                zero + "}\nplan: {stages: auto, data_parallel: auto, schedule: 1f1b, overlap_param_gather: " + overlap +
                "}\n"),
        {});
    const auto found = search(scenario, {.objective = Objective::StepTime, .gap = 0});
    return std::get<SearchAnswer>(found).plans.front().report.step_time;
  };
  CHECK(fastest("auto", "true") == fastest("1", "true"));
  CHECK(fastest("auto", "true") <= fastest("auto", "false"));
}
