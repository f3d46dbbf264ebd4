// Chunks there and back, and each stage on two workers: what plans, memory and reports make of them.
#include <array>
#include <string>

#include <doctest/doctest.h>

#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "core/cost/memory_model.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright::tests;

namespace {

Scenario scenario_of(const std::string& schedule, int virtual_stages, int layers = 16) {
  Scenario scenario = uniform_scenario({.layers = layers});
  scenario.plan.schedule.value = schedule, scenario.plan.virtual_stages.value = virtual_stages;
  for (LayerId i = 0; i < std::ssize(scenario.model.layers); ++i) {
    Layer& layer = scenario.model.layers[i];
    layer.stash = Bytes{1000 + 37 * static_cast<std::int64_t>(i)}, layer.activation = Bytes{100};
    layer.parameters = 500 + 11 * static_cast<std::int64_t>(i);
  }
  return scenario;
}

}  // namespace

TEST_CASE("as many pipelines as stages, or a part of that, half of them each way") {
  Scenario scenario = uniform_scenario({.layers = 8, .micro_batches = 8});
  scenario.plan.schedule.value = "chimera", scenario.plan.stages.value = 4;
  for (const std::int64_t pipelines : {2, 4}) {
    scenario.plan.pipelines = Placed<std::int64_t>{pipelines, {"s.yaml", 9, 3}};
    const Plan plan = plan_of(scenario);
    CHECK(plan.seating().holders(0) == pipelines);
    CHECK(plan.seating().held() == pipelines);
  }
  for (const std::int64_t pipelines : {1, 3, 6, 8, 16, 1'000'000'000}) {
    scenario.plan.pipelines = Placed<std::int64_t>{pipelines, {"s.yaml", 9, 3}};
    CHECK(error_of(scenario) ==
          "s.yaml:9:3: plan.pipelines: chimera runs as many pipelines down as up, and stages are a multiple of all of "
          "them, but plan.pipelines is " +
              std::to_string(pipelines) + " for K = 4: use 2 or 4");
  }
}

TEST_CASE("the memory of a stage alone is what the whole model says of it, whichever chunks the stage holds") {
  for (const auto& [schedule, chunks] : {std::pair{"1f1b", 1}, std::pair{"interleaved_1f1b", 3}, std::pair{"zbv", 2},
                                         std::pair{"dualpipev", 2}, std::pair{"dualpipe", 1}}) {
    CAPTURE(schedule);
    const Scenario scenario = scenario_of(schedule, chunks);
    const CostModel cost(scenario);
    const Plan plan = find_plan(scenario, cost);
    const Answer answer = price(plan, cost, Engine::Auto);
    const std::array<LayerCosts, 2> layers = {cost.layers(1), cost.layers(1)};
    for (StageId k = 0; k < plan.stages; ++k)
      CHECK(peak(memory_of_stage(plan, cost, layers, k), answer.schedule, as<PositionId>(k)).bytes.total() ==
            peak(answer.memory, answer.schedule, as<PositionId>(k)).bytes.total());
  }
}

TEST_CASE("each stage on two workers: weights, gradients and states twice, shared out by ZeRO over the two") {
  Scenario scenario = scenario_of("dualpipe", 1);
  const auto of = [&](int zero) {
    scenario.training.zero = zero;
    const CostModel cost(scenario);
    return price(find_plan(scenario, cost), cost, Engine::Auto);
  };
  const Answer whole = of(0), shared = of(1);
  Bytes states, shares, weights, once;
  for (const ChunkMemory& chunk : whole.memory.chunks)
    once += chunk.weights;
  for (PositionId k = 0; k < 4; ++k) {
    states += peak(whole.memory, whole.schedule, k).bytes.optimizer;
    shares += peak(shared.memory, shared.schedule, k).bytes.optimizer;
    weights += peak(whole.memory, whole.schedule, k).bytes.weights;
  }
  CHECK(weights == once + once);
  CHECK(shares.value * 2 <= states.value + 4 * 64);  // rounded up per share
  CHECK(shares.value * 2 >= states.value);
  for (const std::string& line : shared.report.warnings)
    CHECK(line.find("training.zero") == std::string::npos);
}

TEST_CASE("each stage on two workers: what would have to tell the two apart is refused, with a way out") {
  Scenario scenario = scenario_of("dualpipe", 1);
  scenario.plan.recompute.value = {Recompute::Knapsack};
  CHECK(error_of(scenario).find("two workers hold each stage; write full, blocks, or the layers") != std::string::npos);
  scenario.plan.recompute.value = {Recompute::None};
  scenario.plan.partition.value = Fitting{};
  CHECK(error_of(scenario).find("fitting is for one chunk per stage") != std::string::npos);
  scenario.plan.partition.value = Balanced{};
  CHECK(error_of(scenario) == "no error");
  // Stages 0 and 3 hold the same layers: on devices of two classes no price would be that of both.
  Cluster& cluster = scenario.cluster;
  cluster.nodes = 2, cluster.devices_per_node = 2;
  cluster.network.emplace().bandwidth = Bandwidth{1e9};
  DeviceClass other;
  other.name = "other", other.nodes = 1, other.device = cluster.device, other.speed = 0.5;
  cluster.others.push_back(other);
  scenario.plan.partition.value = LayerCounts{{4, 4, 4, 4}};
  const std::string mixed = error_of(scenario);
  CAPTURE(mixed);
  CHECK(mixed.find("but all that hold a stage must be of one class") != std::string::npos);
}

TEST_CASE("recomputation is said by stage of the model, and both of its workers repeat the forward") {
  Scenario scenario = scenario_of("dualpipe", 1);
  scenario.plan.recompute.value = {Recompute::Full, Recompute::None, Recompute::None, Recompute::None};
  const CostModel cost(scenario);
  const Answer answer = price(find_plan(scenario, cost), cost, Engine::Auto);
  const std::vector<StageReport>& stages = answer.report.stages;
  REQUIRE(stages.size() == 4);
  CHECK(stages[0].recompute == stages[3].recompute);
  CHECK(stages[0].recompute > Time{});
  CHECK(stages[1].recompute == Time{});
  CHECK(stages[0].busy == stages[3].busy);
}
