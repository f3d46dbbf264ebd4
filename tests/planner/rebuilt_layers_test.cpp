// Recomputation by layer on plans: the set that a stage chooses, what it costs, and what is refused.
#include "planner/partitioners/rebuilt_layers.hpp"

#include <algorithm>
#include <random>

#include <doctest/doctest.h>

#include "core/cost/buckets.hpp"
#include "planner/find_plan.hpp"
#include "planner/partitioners/fitting.hpp"
#include "planner/price.hpp"
#include "sim/schedules/table.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/family_model.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright::tests;

namespace {

Scenario random_recomputed(std::mt19937& random, int layers, int stages, const char* schedule) {
  Scenario scenario = uniform_scenario({.layers = layers, .stages = stages, .micro_batches = 8});
  for (Layer& layer : scenario.model.layers) {
    layer.forward = Time{static_cast<std::int64_t>(1000 + random() % 9000)};
    layer.activation = Bytes{static_cast<std::int64_t>(random() % 2000)};
    layer.stash = Bytes{static_cast<std::int64_t>(random() % 6000)};  // now and then less than the output
    layer.parameters = static_cast<std::int64_t>(random() % 500);
  }
  scenario.model.input = Bytes{700};
  scenario.plan.schedule.value = schedule;
  return scenario;
}

Schedule schedule_of(const Plan& plan, const Scenario& scenario) {
  return make_schedule(plan, schedule_shape(plan, scenario.model, scenario.training));
}

// Of a stage with one subset of its layers rebuilt.
Bytes need_of(Plan plan, const Scenario& scenario, const CostModel& cost, StageId k, std::vector<LayerId> rebuilt) {
  plan.recompute[k] = Recompute::Layers, plan.rebuilt = std::move(rebuilt);
  const MemoryModel memory = memory_model(plan, cost);
  return need(memory, peak(memory, schedule_of(plan, scenario), as<PositionId>(k)).bytes, k).with_reserve;
}

Scenario gpt(int blocks) {
  Scenario scenario = uniform_scenario({.layers = 3, .devices = 4, .stages = 2, .micro_batches = 8});
  scenario.model = family_model("gpt", {{"layers", std::to_string(blocks)},
                                        {"hidden", "64"},
                                        {"heads", "4"},
                                        {"sequence_length", "32"},
                                        {"vocabulary", "512"}});
  settle(scenario.model, Bytes{4}, {});
  scenario.cost = CostSourceKind::Roofline;
  scenario.cluster.device.peak[Precision::Fp32] = FlopRate{1e9};
  scenario.cluster.device.memory_bandwidth = Bandwidth{1e9};
  return scenario;
}

void list(Scenario& scenario, const std::vector<std::vector<std::int64_t>>& stages) {
  scenario.plan.recompute.value.assign(stages.size(), Recompute::Layers);
  scenario.plan.recompute_layers.clear();
  for (const auto& layers : stages)
    scenario.plan.recompute_layers.push_back({layers, scenario.plan.recompute.place});
}

}  // namespace

TEST_CASE("a stage chooses the set that adds least of all sets that fit, as the walk over its ops counts them") {
  std::mt19937 random(21);
  int sets = 0, nothing_fits = 0;
  for (int round = 0; round < 60; ++round) {
    const char* schedule = std::array{"1f1b", "gpipe", "eager_1f1b"}[at(round % 3)];
    Scenario scenario = random_recomputed(random, 9, 1 + round % 2, schedule);
    if (round % 4 == 3) scenario.cluster.device.allocator = Allocator::Caching;
    const CostModel cost(scenario);
    const Plan plan = find_plan(scenario, cost);
    const std::array<LayerCosts, 2> layers = {cost.layers(1), cost.layers(1)};
    for (StageId k = 0; k < plan.stages; ++k) {
      const LayerRange range = plan.layers[as<VirtualStageId>(k)];
      const Bytes all = need_of(plan, scenario, cost, k, {});
      const Bytes room{all.value - static_cast<std::int64_t>(random() % static_cast<unsigned>(all.value / 2))};
      std::optional<Time> best;
      Bytes least = all;
      for (std::uint32_t subset = 0; subset < std::uint32_t{1} << range.size(); ++subset) {
        std::vector<LayerId> rebuilt;
        Time extra;
        for (LayerId i = range.begin; i < range.end; ++i)
          if ((subset >> (i - range.begin) & 1) != 0) rebuilt.push_back(i), extra += layers[0].forward[at(i)];
        const Bytes needed = need_of(plan, scenario, cost, k, rebuilt);
        least = std::min(least, needed);
        if (needed <= room && (!best || extra < *best)) best = extra;
      }
      const RebuiltStage found = rebuild_stage(plan, cost, layers, schedule_of(plan, scenario), k, room);
      CHECK(found.fits == best.has_value());
      CHECK(found.need == need_of(plan, scenario, cost, k, found.layers));
      CHECK(least_need_of_stage(plan, cost, layers, schedule_of(plan, scenario), k).need == least);
      if (best) CHECK(found.extra == *best);
      if (!best) CHECK(found.need == least);
      ++(best ? sets : nothing_fits);
    }
  }
  CHECK(sets > 40);
  CHECK(nothing_fits > 5);
}

TEST_CASE("several chunks per stage: the set fits at every moment of the walk, and is worth less than all") {
  std::mt19937 random(22);
  int fewer = 0;
  for (int round = 0; round < 20; ++round) {
    Scenario scenario = random_recomputed(random, 16, 2, "interleaved_1f1b");
    scenario.plan.virtual_stages.value = 2;
    const CostModel cost(scenario);
    const Plan plan = find_plan(scenario, cost);
    const std::array<LayerCosts, 2> layers = {cost.layers(1), cost.layers(1)};
    const Bytes all = need_of(plan, scenario, cost, 0, {});
    const Bytes least = least_need_of_stage(plan, cost, layers, schedule_of(plan, scenario), 0).need;
    const Bytes room{(all.value + least.value) / 2};
    const RebuiltStage found = rebuild_stage(plan, cost, layers, schedule_of(plan, scenario), 0, room);
    REQUIRE(found.fits);
    CHECK(need_of(plan, scenario, cost, 0, found.layers) <= room);
    if (found.layers.size() < 8) ++fewer;
  }
  CHECK(fewer == 20);
}

TEST_CASE("with a set of layers the walk and the simulated curve have one peak, buffers apart") {
  std::mt19937 random(23);
  for (const char* schedule : {"1f1b", "gpipe", "eager_1f1b", "interleaved_1f1b", "zbv", "dualpipev", "pipedream"}) {
    Scenario scenario = random_recomputed(random, 12, 3, schedule);
    if (find_schedule(schedule)->facts.takes_chunks)
      scenario.plan.virtual_stages.value = 2, scenario.training.micro_batches->value = 9;
    list(scenario, {{0, 2, 3, 5, 8, 10}});
    const CostModel cost(scenario);
    const Answer answer = price(find_plan(scenario, cost), cost, Engine::Auto);
    for (int w = 0; w < 3; ++w) {
      Bytes most;
      for (const MemoryPoint& point : series(answer.memory, answer.schedule, answer.costs, answer.timeline, w))
        most = std::max(most, point.bytes.total() - point.bytes.buffers);
      CHECK(most == peak(answer.memory, answer.schedule, w).bytes.total());
    }
  }
}

TEST_CASE("all blocks of a Transformer rebuilt are recompute: blocks, an empty set is none") {
  Scenario scenario = gpt(6);
  const CostModel cost(scenario);
  const auto priced = [&] { return price(find_plan(scenario, cost), cost, Engine::Auto).report; };
  const auto same = [](const Report& a, const Report& b) {
    bool alike = a.step_time == b.step_time;
    for (std::size_t w = 0; w < a.workers.size(); ++w)
      alike &= a.workers[w].need.with_reserve == b.workers[w].need.with_reserve;
    return alike;
  };
  scenario.plan.recompute.value = {Recompute::Blocks};
  const Report blocks = priced();
  scenario.plan.recompute.value = {};
  const Report none = priced();
  list(scenario, {{1, 2, 3, 4, 5, 6}});
  CHECK(same(priced(), blocks));
  list(scenario, {{}});
  CHECK(same(priced(), none));
  CHECK(blocks.step_time > none.step_time);
}

// Stage 0 of two has two micro-batches in flight, and lacks the room for two of its blocks' insides: two are rebuilt,
// where full recomputation and blocks rebuild all.
TEST_CASE("the knapsack rebuilds what must be, and is faster than full and blocks where those rebuild all") {
  Scenario scenario = gpt(8);
  const auto report_of = [&](Recompute mode, Bytes memory) {
    scenario.cluster.device.memory = memory;
    scenario.plan.recompute.value = {mode};
    const CostModel cost(scenario);
    return price(find_plan(scenario, cost), cost, Engine::Auto).report;
  };
  const Report none = report_of(Recompute::None, Bytes{1 << 30});
  const Bytes full = none.workers[0].need.with_reserve;
  const CostModel cost(scenario);
  const std::int64_t inside = kept_by_layers(find_plan(scenario, cost), cost, cost.layers(1), 0)[1].again.value;
  const Bytes room = full - Bytes{2 * inside};  // two layers free 4 insides and have one there
  CHECK_FALSE(report_of(Recompute::None, room).fits);
  const Report some = report_of(Recompute::Knapsack, room);
  CHECK(some.fits);
  CHECK(some.step_time > none.step_time);
  CHECK(report_of(Recompute::Full, room).fits);
  CHECK(report_of(Recompute::Blocks, room).fits);
  CHECK(some.step_time < report_of(Recompute::Full, room).step_time);
  CHECK(some.step_time < report_of(Recompute::Blocks, room).step_time);
  scenario.plan.recompute.value = {Recompute::Knapsack};
  const CostModel small(scenario);
  const Plan plan = find_plan(scenario, small);
  CHECK(plan.recompute == std::vector{Recompute::Layers, Recompute::None});
  CHECK(plan.rebuilt.size() == 2);
}

TEST_CASE("a set leaves room for buffers, which only the simulation knows") {
  std::mt19937 random(24);
  int chosen = 0;
  for (int round = 0; round < 30; ++round) {
    Scenario scenario = random_recomputed(random, 10, 2, "1f1b");
    for (Layer& layer : scenario.model.layers)
      layer.stash = Bytes{layer.activation.value + 4000};
    scenario.cluster.links.kind = LinkKind::Mesh;
    scenario.cluster.links.bandwidth = Bandwidth{1e9};
    const CostModel roomy(scenario);
    const Report none = price(find_plan(scenario, roomy), roomy, Engine::Auto).report;
    Bytes most;
    for (const WorkerReport& worker : none.workers)
      most = std::max(most, worker.need.with_reserve);
    scenario.cluster.device.memory = Bytes{most.value * (80 + static_cast<std::int64_t>(random() % 20)) / 100};
    scenario.plan.recompute.value = {Recompute::Knapsack};
    const CostModel cost(scenario);
    const Answer answer = price(find_plan(scenario, cost), cost, Engine::Auto);
    CHECK(answer.report.fits);
    if (!answer.plan.rebuilt.empty()) ++chosen;
  }
  CHECK(chosen > 20);
}

TEST_CASE("where no set fits, the plan takes the one that needs least, and the report says how much is missing") {
  Scenario scenario = gpt(8);
  scenario.cluster.device.memory = Bytes{1000};
  scenario.plan.recompute.value = {Recompute::Knapsack};
  const CostModel cost(scenario);
  const Answer answer = price(find_plan(scenario, cost), cost, Engine::Auto);
  CHECK_FALSE(answer.report.fits);
  scenario.plan.recompute.value = {Recompute::Blocks};
  const CostModel blocks(scenario);
  CHECK(answer.report.workers[0].need.with_reserve <=
        price(find_plan(scenario, blocks), blocks, Engine::Auto).report.workers[0].need.with_reserve);
}

TEST_CASE("partition: fitting cuts for the sets that knapsack may choose") {
  Scenario scenario = gpt(9);
  scenario.plan.partition.value = Fitting{};
  scenario.plan.recompute.value = {};
  const CostModel roomy(scenario);
  const Report none = price(find_plan(scenario, roomy), roomy, Engine::Auto).report;
  scenario.cluster.device.memory = Bytes{none.workers[0].need.with_reserve.value * 8 / 10};
  const CostModel small(scenario);
  CHECK_FALSE(price(find_plan(scenario, small), small, Engine::Auto).report.fits);
  scenario.plan.recompute.value = {Recompute::Knapsack};
  const CostModel cost(scenario);
  CHECK(price(find_plan(scenario, cost), cost, Engine::Auto).report.fits);
}

TEST_CASE("listed layers that cannot be: errors name the layer and the stage") {
  Scenario scenario = uniform_scenario({.layers = 8, .stages = 2});
  list(scenario, {{1, 8}});
  CHECK(error_of(scenario) == "s.yaml:7:3: plan.recompute: no layer 8; the model has layers 0 to 7");
  list(scenario, {{1, 3, 1}});
  CHECK(error_of(scenario) ==
        "s.yaml:7:3: plan.recompute: layer 1 (\"layer1\") is listed twice; list each layer once, with its stage");
  list(scenario, {{1, 5}, {6}});
  CHECK(error_of(scenario) ==
        "s.yaml:7:3: plan.recompute: layer 5 (\"layer5\") is none of stage 0; list it with its own stage, or write one "
        "{layers: [...]} for all");
  list(scenario, {{1, 5}});
  CHECK(error_of(scenario) == "no error");
  scenario.plan.partition.value = SuffixDp{};
  for (const std::string_view key : kSetByWholePlan)
    scenario.plan.open[std::string(key)] = {};
  CHECK(error_of(scenario).find("plan.recompute: chooses layers of stages, but plan.partition: suffix_dp") !=
        std::string::npos);
}
