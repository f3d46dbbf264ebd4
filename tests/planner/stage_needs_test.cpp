#include "planner/partitioners/stage_needs.hpp"

#include <random>

#include <doctest/doctest.h>

#include "core/cost/buckets.hpp"
#include "planner/find_plan.hpp"
#include "sim/schedules/table.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright::tests;

TEST_CASE("a short walk finds the peak of a long step") {
  std::mt19937 random(11);
  for (const char* schedule : {"1f1b", "eager_1f1b", "gpipe"})
    for (const Recompute mode : {Recompute::None, Recompute::Full}) {
      Scenario scenario = uniform_scenario({.layers = 8, .stages = 4, .micro_batches = 40});
      for (Layer& layer : scenario.model.layers) {
        layer.activation = Bytes{static_cast<std::int64_t>(random() % 1000)};
        layer.stash = Bytes{static_cast<std::int64_t>(random() % 5000)};
        layer.parameters = static_cast<std::int64_t>(random() % 100);
      }
      scenario.plan.schedule.value = schedule;
      scenario.plan.recompute.value = {mode};
      const CostModel cost(scenario);
      const Plan plan = find_plan(scenario, cost);
      StageNeeds needs(plan, cost);
      const MemoryModel memory = memory_model(plan, cost);
      const Schedule whole = find_schedule(schedule)->generate(schedule_shape(plan, scenario.model, scenario.training));
      for (StageId k = 0; k < 4; ++k)
        CHECK(needs.need(k, plan.layers[as<VirtualStageId>(k)]) ==
              need(memory, peak(memory, whole, as<PositionId>(k)).bytes, k).with_reserve);
    }
}
