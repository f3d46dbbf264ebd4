// training.zero from 2 on: who divides what with whom, what it takes, and when it is exchanged.
#include "planner/sharding.hpp"

#include <variant>

#include <doctest/doctest.h>

#include "core/cost/state_exchange.hpp"
#include "io/writers/schedule_csv.hpp"
#include "planner/price.hpp"
#include "planner/search/found.hpp"
#include "planner/search/search.hpp"
#include "planner/search/space.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/planner/sharded_scenario.hpp"

using namespace pipewright::tests;

namespace {

std::string sharding_refusal(const Scenario& scenario) {
  try {
    plan_of(scenario);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

Bytes states(const Scenario& scenario) {
  const CostModel cost(scenario);
  const MemoryModel memory = memory_model(find_plan(scenario, cost), cost);
  Bytes sum;
  for (const ChunkMemory& chunk : memory.chunks)
    sum += chunk.weights + chunk.gradients + chunk.optimizer;
  return sum;
}

bool says(const std::string& text, std::string_view what) {
  return text.find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("units: each block by itself, and what lies before, between and behind") {
  Model model;
  for (const bool block : {false, false, true, true, false, false, true, false}) {
    model.layers.emplace_back();
    model.layers.back().block = block;
  }
  using Ranges = std::vector<LayerRange>;
  CHECK(natural_units(model, {0, 8}) == Ranges{{0, 2}, {2, 3}, {3, 4}, {4, 6}, {6, 7}, {7, 8}});
  CHECK(natural_units(model, {3, 6}) == Ranges{{3, 4}, {4, 6}});
  CHECK(natural_units(model, {0, 1}) == Ranges{{0, 1}});
  for (LayerId i = 0; i < std::ssize(model.layers); ++i)
    model.layers[i].block = false, model.layers[i].parameters = i % 3 == 0 ? 10 : 0;
  CHECK(natural_units(model, {0, 8}) == Ranges{{0, 3}, {3, 6}, {6, 8}});
  CHECK(natural_units(model, {1, 8}) == Ranges{{1, 6}, {6, 8}});
}

TEST_CASE("FSDP: unit by unit, gathered again for the backward, reduced after every micro-batch") {
  const Plan plan = plan_of(sharded(4, 2, 3));
  CHECK(plan.units == 4);
  CHECK(plan.layers == std::vector<LayerRange>{{0, 1}, {1, 2}, {2, 3}, {3, 4}});
  CHECK(plan.resharding == Resharding{true, true});
  CHECK(plan.reduce_each);
  CHECK(plan.bucket == Bytes{400'000'000});  // a unit is reduced at once
  CHECK(plan.sharded_over(0) == 2);
}

// PyTorch's pipelines gather once a step, and reduce behind the last micro-batch.
TEST_CASE("FSDP in a pipeline: as many units on every stage; gathered and reduced once a step") {
  Scenario scenario = sharded(7, 2, 4);
  scenario.cluster.devices_per_node = 4;
  scenario.plan.stages.value = 2;
  scenario.plan.partition.value = LayerCounts{{3, 4}};
  Plan plan = plan_of(scenario);
  CHECK(plan.units == 3);
  CHECK(plan.layers == std::vector<LayerRange>{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 7}});
  CHECK(plan.resharding == Resharding{false, false});
  CHECK_FALSE(plan.reduce_each);
  const auto gathers = [&] {
    const CostModel cost(scenario);
    return price(plan, cost, Engine::Auto).schedule.positions[0].communication[kGathers].size();
  };
  CHECK(gathers() == 3);
  scenario.plan.reshard_after_forward = Placed<bool>{true, {}};
  plan = plan_of(scenario);
  CHECK(plan.resharding == Resharding{true, true});
  CHECK(gathers() > 3 * 4);
}

// [FSDP23] section 3.3: the first gather and the last reduction show. Of two micro-batches the reduction that ends the first
// meets the gather for the second forward on the ports: both take 4 ms, one more than the forward that would hide them.
TEST_CASE("a step of four units: 2 + 4 * 3 + 4 * 6 + 2 = 40 ms; of two micro-batches 2 + 2 * 36 + 1 + 2") {
  CHECK(priced(sharded(4, 2, 1)).report.step_time == Time{40'000'000});
  CHECK(priced(sharded(4, 2, 2)).report.step_time == Time{77'000'000});
  // Whole weights: the gradients of 400 MB are all-reduced in 4 ms, the last block's behind everything.
  CHECK(priced(sharded(4, 2, 1, 0)).report.step_time == Time{40'000'000});
}

// Gathered once, all 1600 MB before the first forward: 8 ms. Reductions of every block hide but for the last.
TEST_CASE("ZeRO-2: weights are gathered whole, once a step") {
  Scenario scenario = sharded(4, 2, 1, 2);
  scenario.plan.bucket = Bytes{400'000'000};
  const Answer answer = priced(scenario);
  CHECK(answer.plan.units == 1);
  CHECK(answer.report.step_time == Time{8'000'000 + 36'000'000 + 2'000'000});
  scenario.training.micro_batches->value = 3;
  const Answer three = priced(scenario);
  CHECK(three.schedule.positions[0].communication[kGathers].size() == 1);
  CHECK(three.schedule.positions[0].communication[kReductions].size() == 3 * 4);
  CHECK(three.report.step_time == Time{8'000'000 + 3 * 36'000'000 + 2'000'000});
  scenario.plan.reduce_gradients = Placed<ReduceGradients>{ReduceGradients::Step, {}};
  CHECK(priced(scenario).schedule.positions[0].communication[kReductions].size() == 4);
}

// [ZeRO20] figure 1 and section 3.1: 7.5 billion parameters on 64 devices; and Llama 3 8B on 8, gradients in fp32.
TEST_CASE("ZeRO: bytes of weights, gradients and states of a device") {
  Scenario scenario = sharded(1, 64, 1, 0);
  scenario.training.precision = Precision::Fp16, scenario.training.optimizer = Optimizer::Adam;
  scenario.model.layers[0].parameters = 7'500'000'000;
  const auto at_stage = [&](std::int64_t zero) {
    scenario.training.zero = zero;
    return states(scenario).value;
  };
  CHECK(at_stage(0) == 120'000'000'000);
  CHECK(at_stage(1) == 31'406'250'000);
  CHECK(at_stage(2) == 16'640'625'000);
  CHECK(at_stage(3) == 1'875'000'000);
  scenario = sharded(1, 8, 1, 0);
  scenario.training.precision = Precision::Bf16, scenario.training.optimizer = Optimizer::Adam;
  scenario.training.gradient_precision = Precision::Fp32;
  scenario.model.layers[0].parameters = 8'030'261'248;
  CHECK(at_stage(1) == 60'226'959'360);
  CHECK(at_stage(2) == 32'121'044'992);
  CHECK(at_stage(3) == 18'068'087'808);
  // Hybrid: over four of the eight.
  scenario.plan.shard = Placed<std::int64_t>{4, {}};
  CHECK(at_stage(3) == 2 * 18'068'087'808);
}

// Blocks of 400 MB in two copies: shares of 800 MB of weights and as much of gradients. At the last block's backward it
// is whole, and so is the one before, gathered ahead; its gradients are not scattered yet.
TEST_CASE("FSDP: two units are whole at most, and the gradients of one") {
  const Answer answer = priced(sharded(4, 2, 1));
  const MemoryPeak walk = peak(answer.memory, answer.schedule, 0);
  CHECK(walk.bytes.weights == Bytes{1'600'000'000});
  CHECK(walk.bytes.gradients == Bytes{1'200'000'000});
  CHECK(label(std::get<Op>(walk.owner)) == "3B0");
  // On the clock what travels comes on top: the reduction of the block behind.
  CHECK(answer.report.workers[0].memory.bytes.buffers >= Bytes{400'000'000});
  const std::vector<MemoryPoint> points = series(answer.memory, answer.schedule, answer.costs, answer.timeline, 0);
  for (const MemoryPoint& point : points)
    CHECK(point.bytes.weights <= Bytes{1'600'000'000});
  CHECK(points.back().bytes.weights == Bytes{800'000'000});
  CHECK(points.back().bytes.gradients == Bytes{800'000'000});
}

TEST_CASE("FSDP: weights that are kept after the forward are all there when the backward begins") {
  Scenario scenario = sharded(4, 2, 1);
  scenario.plan.reshard_after_forward = Placed<bool>{false, {}};
  const Answer answer = priced(scenario);
  const MemoryPeak walk = peak(answer.memory, answer.schedule, 0);
  CHECK(walk.bytes.weights == Bytes{2'400'000'000});
  CHECK(answer.schedule.positions[0].communication[kGathers].size() == 4);
}

// Two nodes of two devices, ports of 100 GB/s and 1 us, a NIC of 10 GB/s and 5 us on each node. 80 MB of gradients and
// as much of weights. Groups {0, 1} and {2, 3}: 1 us + 40 MB at 100 GB/s; then rings {0, 2} and {1, 3} of 40 MB, which
// share the NICs, 5 GB/s each: 2 * 5 us + 8 ms.
TEST_CASE("hybrid sharding: scattered inside the groups, and all-reduced between them") {
  Scenario scenario = sharded(1, 4, 1);
  scenario.cluster.nodes = 2, scenario.cluster.devices_per_node = 2;
  scenario.cluster.links.latency = Time{1'000};
  scenario.cluster.network.emplace();
  scenario.cluster.network->bandwidth = Bandwidth{10e9};
  scenario.cluster.network->latency = Time{5'000};
  const auto exchanged = [&](std::int64_t zero) {
    scenario.training.zero = zero;
    const CostModel cost(scenario);
    const StateExchange exchange(find_plan(scenario, cost), 0, cost);
    return std::pair{exchange.reduce({Bytes{80'000'000}, {}}).time, exchange.gather({Bytes{80'000'000}, {}}).time};
  };
  // Over all four, in two levels: 1 us + 40 MB at 100 GB/s, then rings of 20 MB at 5 GB/s each. A ring alone would pass 60 MB
  // over each NIC.
  CHECK(exchanged(3) == std::pair{Time{401'000 + 4'005'000}, Time{401'000 + 4'005'000}});
  scenario.plan.shard = Placed<std::int64_t>{2, {}};
  CHECK(exchanged(3) == std::pair{Time{401'000 + 8'010'000}, Time{401'000}});
  CHECK(exchanged(2).first == Time{401'000 + 8'010'000});
  CHECK(exchanged(1) == std::pair{Time{401'000 + 8'010'000}, Time{401'000}});
  scenario.plan.shard = Placed<std::int64_t>{1, {}};
  CHECK(exchanged(3).second == Time{0});  // nothing is divided
}

// Eight copies on two nodes of four, ports of 100 GB/s; 400 MB a block. Of all eight 300 MB pass the ports, in 3 ms, and four
// rings of 50 MB a NIC of 10 GB/s, in 20 ms; four on a node: 300 MB at 100 GB/s, 3 ms.
TEST_CASE("FSDP: shards of few are kept after a forward, and gathered among them") {
  Scenario scenario = sharded(4, 8, 1);
  scenario.cluster.nodes = 2, scenario.cluster.devices_per_node = 4;
  scenario.cluster.network.emplace();
  scenario.cluster.network->bandwidth = Bandwidth{10e9};
  const auto with = [&](std::optional<Placed<bool>> after, std::int64_t over) {
    scenario.plan.reshard_after_forward = after, scenario.plan.reshard_over = over;
    return priced(scenario);
  };
  const Placed<bool> yes{true, Place{"s.yaml", 12, 3}};
  const Answer whole = with(yes, 0), few = with(yes, 4);
  CHECK(few.plan.resharding == Resharding{true, true, 4});
  std::vector<std::string> labels;
  std::vector<Time> took;
  const auto& gathers = few.schedule.positions[0].communication[kGathers];
  for (std::size_t i = 0; i < gathers.size(); ++i) {
    labels.push_back(label(gathers[i]));
    const Span& span = few.timeline.workers[0].communication[kGathers][i];
    took.push_back(span.end - span.start);
  }
  // The last block is kept between its passes; 3: for a backward, of few.
  CHECK(labels == std::vector<std::string>{"0AG0.0", "1AG0.0", "2AG0.0", "3AG0.0", "2AG0.3", "1AG0.3", "0AG0.3"});
  CHECK(took[0] == Time{23'000'000});
  CHECK(took[4] == Time{3'000'000});
  CHECK(few.report.step_time < whole.report.step_time);
  // Shares of an eighth, 4 x 50 MB. When the last block's backward begins it is whole, the one before is gathered, and
  // of three blocks a quarter is kept, 100 MB each.
  const auto weights = [](const Answer& answer) { return peak(answer.memory, answer.schedule, 0).bytes.weights; };
  CHECK(weights(whole) == Bytes{200'000'000 + 2 * 400'000'000});
  CHECK(weights(few) == Bytes{200'000'000 + 2 * 400'000'000 + 3 * 100'000'000});
  const std::vector<MemoryPoint> points = series(few.memory, few.schedule, few.costs, few.timeline, 0);
  CHECK(points.back().bytes.weights == Bytes{200'000'000});
  // As many as there are is yes.
  CHECK(with(yes, 8).plan.resharding == Resharding{true, true});
  scenario.plan.reshard_over = 3;
  CHECK(says(sharding_refusal(scenario), "s.yaml:12:3"));
  CHECK(says(sharding_refusal(scenario), "3 does not divide the 8 devices that share weights; use 1, 2, 4 or 8"));
}

// Forwards that follow one another find the shards of few, too: GPipe's on one stage.
TEST_CASE("FSDP: behind a forward a forward gathers among few, behind a backward among all") {
  Scenario scenario = sharded(3, 4, 2);
  scenario.plan.reshard_after_forward = Placed<bool>{true, {}}, scenario.plan.reshard_over = 2;
  const auto few = [&](const char* schedule) {
    scenario.plan.schedule.value = schedule;
    const Answer answer = priced(scenario);
    std::vector<std::string> labels;
    for (const Op& gather : answer.schedule.positions[0].communication[kGathers])
      if (gather.bucket >= kFromFew) labels.push_back(label(gather));
    return labels;
  };
  using Labels = std::vector<std::string>;
  CHECK(few("1f1b") == Labels{"1AG0.3", "0AG0.3", "1AG1.3", "0AG1.3"});
  CHECK(few("gpipe") == Labels{"0AG1.2", "1AG1.2", "2AG1.2", "1AG1.3", "0AG1.3"});
}

// FSDP2 leaves weights alone while a backward repeats a forward: as many gathers with and without, kept or not.
TEST_CASE("FSDP: a forward that is repeated in the backward gathers nothing more") {
  for (const bool kept : {false, true}) {
    Scenario scenario = sharded(4, 2, 2);
    scenario.plan.reshard_after_forward = Placed<bool>{!kept, {}};
    const auto gathers = [&](Recompute mode) {
      scenario.plan.recompute.value = {mode};
      return priced(scenario).schedule.positions[0].communication[kGathers];
    };
    CHECK(gathers(Recompute::Blocks) == gathers(Recompute::None));
    CHECK(gathers(Recompute::Blocks).size() == (kept ? 4 + 3 : 4 + 3 + 3 + 3));
  }
}

// Units of one worker keep tensors for one another: a tensor is kept once, wherever the next unit begins.
TEST_CASE("activations take as much in units as they do whole") {
  for (const bool skip : {false, true})
    for (const Skips skips : {Skips::Hop, Skips::Direct})
      for (const std::int64_t stages : {1, 2}) {
        Scenario scenario = sharded(6, 2, 1, 0);
        scenario.cluster.devices_per_node = 4;
        scenario.plan.stages.value = stages;
        scenario.plan.skips = skips;
        if (skip) scenario.model.layers[5].inputs = {4, 0};
        const auto stash = [&](std::int64_t zero) {
          scenario.training.zero = zero;
          const Answer answer = priced(scenario);
          std::vector<Bytes> kept;
          for (PositionId position = 0; position < stages; ++position) {
            Bytes most;
            const MemoryModel& memory = answer.memory;
            for (const MemoryPoint& point :
                 series(memory, answer.schedule, answer.costs, answer.timeline, as<WorkerId>(position)))
              most = std::max(most, point.bytes.stash);
            kept.push_back(most);
          }
          return kept;
        };
        CHECK(stash(0) == stash(3));
      }
}

TEST_CASE("PyTorch's schedule file has chunks, not units") {
  Scenario scenario = sharded(6, 2, 4, 0);
  scenario.cluster.devices_per_node = 4;
  scenario.plan.stages.value = 2;
  for (const char* schedule : {"1f1b", "zb_h1"}) {
    scenario.plan.schedule.value = schedule;
    const auto file = [&](std::int64_t zero) {
      scenario.training.zero = zero;
      return schedule_csv(priced(scenario).schedule);
    };
    CHECK(file(0) == file(3));
  }
}

// Stated cuts are taken as they are; of stages that are searched for, memory and time depend on the units.
TEST_CASE("partitions that weigh whole stages are refused for sharded weights") {
  Scenario scenario = sharded(6, 2, 4);
  scenario.cluster.devices_per_node = 4;
  scenario.plan.stages.value = 2;
  scenario.plan.partition.value = LeastStep{};
  CHECK(says(sharding_refusal(scenario), "plan.partition: exact does not know which units are whole at a time"));
  scenario.plan.partition.value = Fitting{};
  CHECK(says(sharding_refusal(scenario), "fitting does not know"));
  scenario.training.zero = 2;
  CHECK(sharding_refusal(scenario).empty());
}

TEST_CASE("what sharding cannot be is refused with the way out") {
  Scenario scenario = sharded(4, 8, 1);
  scenario.plan.shard = Placed<std::int64_t>{3, Place{"s.yaml", 12, 3}};
  CHECK(says(sharding_refusal(scenario), "s.yaml:12:3"));
  CHECK(says(sharding_refusal(scenario), "3 does not divide plan.data_parallel: 8; use 1, 2, 4 or 8"));
  scenario.training.zero = 0;
  CHECK(says(sharding_refusal(scenario), "copies divide nothing with training.zero: 0; write training.zero: 3"));
  scenario.plan.shard.reset();
  scenario.plan.reshard_after_forward = Placed<bool>{true, {}};
  CHECK(says(sharding_refusal(scenario), "weights are whole with training.zero: 0"));
  scenario = sharded(4, 8, 1, 1);
  scenario.plan.reduce_gradients = Placed<ReduceGradients>{ReduceGradients::Step, {}};
  CHECK(says(sharding_refusal(scenario), "gradients are whole with training.zero: 1"));
  scenario = sharded(4, 2, 4);
  scenario.plan.schedule.value = "pipedream";
  CHECK(says(sharding_refusal(scenario), "pipedream updates the weights of one stage while others run; use 0 or 1"));
  scenario = sharded(4, 1, 4);
  CHECK(plan_of(scenario).units == 1);  // one copy: there is nothing to divide
}

TEST_CASE("the search chooses the groups of hybrid sharding, as simulating each of them would") {
  Scenario asked = sharded(6, 8, 1);
  asked.cluster.nodes = 2, asked.cluster.devices_per_node = 4;
  asked.cluster.network = Network{.bandwidth = Bandwidth{5e9}};
  asked.training.global_batch_size = Placed<std::int64_t>{8, {}};
  asked.plan.open["data_parallel_shard"] = {};
  const auto step = [&](int shard) {
    Scenario one = asked;
    one.plan.open.clear();
    if (shard > 0) one.plan.shard = Placed<std::int64_t>{shard, {}};
    const CostModel cost(one);
    return price(find_plan(one, cost), cost, Engine::Auto).report;
  };
  const Space space = layouts_of(asked);
  REQUIRE(space.groups.size() == 1);
  CHECK(space.groups.front().shards == std::vector<int>{0, 4});  // all copies, and those of a node
  const auto best = [](const Scenario& scenario) {
    return std::get<SearchAnswer>(search(scenario, {.top = 2})).plans.front();
  };
  // Gathers over the ports of a node are faster than over the network, and each device then holds a quarter, not an eighth.
  REQUIRE(step(4).step_time < step(0).step_time);
  const Found fast = best(asked);
  CHECK(fast.layout.shard == 4);
  CHECK(fast.report.step_time == step(4).step_time);
  CHECK(in_words(fast.layout).find("ZeRO-3 over groups of 4") != std::string::npos);
  REQUIRE(fast.scenario->plan.shard.has_value());
  CHECK(fast.scenario->plan.shard->value == 4);
  const Bytes of_four = step(4).workers.front().need.with_reserve, of_all = step(0).workers.front().need.with_reserve;
  REQUIRE(of_all < of_four);
  asked.cluster.device.memory = of_four - Bytes{1};
  const Found fits = best(asked);
  CHECK(fits.layout.shard == 0);
  CHECK_FALSE(fits.scenario->plan.shard.has_value());
  CHECK(fits.report.step_time == step(0).step_time);
  // As listed; what does not divide the copies is left out, and whole copies have no groups.
  asked.plan.open["data_parallel_shard"].among = {"2", "3", "8"};
  CHECK(layouts_of(asked).groups.front().shards == std::vector<int>{2, 0});
  asked.training.open["zero"].among = {"0", "3"};
  CHECK(members(layouts_of(asked).groups.front()).size() == 3);
  asked.plan.open["data_parallel_shard"].among = {"3"};
  CHECK(members(layouts_of(asked).groups.front()).size() == 1);
}
