// plan.offload_layers: units, prices, memory, and what is refused.
#include <algorithm>
#include <memory>
#include <string>
#include <variant>

#include <doctest/doctest.h>

#include "core/cost/cost_model.hpp"
#include "core/cost/memory_model.hpp"
#include "core/plan/given_schedule.hpp"
#include "io/import/schedule_csv.hpp"
#include "io/writers/found_order.hpp"
#include "io/writers/schedule_csv.hpp"
#include "planner/answer.hpp"
#include "planner/find_schedule.hpp"
#include "planner/order_problem.hpp"
#include "planner/search/search.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/uniform_scenario.hpp"

namespace pipewright::tests {
namespace {

// Blocks of 3 ms forward and 6 ms backward that keep 100 MB each; 25 GB/s to the host: 4 ms.
Scenario offloading(int blocks, int stages, std::int64_t offloaded) {
  Scenario scenario = uniform_scenario({.layers = blocks,
                                        .devices = stages,
                                        .stages = stages,
                                        .micro_batches = 2,
                                        .forward = Time{3'000'000},
                                        .backward = Time{6'000'000}});
  for (Layer& layer : scenario.model.layers)
    layer.block = true, layer.stash = Bytes{100'000'000}, layer.parameters = 1;
  scenario.cluster.device.host_link = Bandwidth{25e9};
  if (offloaded > 0) scenario.plan.offload_layers = Placed<std::int64_t>{offloaded, {"s.yaml", 7, 3}};
  return scenario;
}

Answer answered_offload(const Scenario& scenario) {
  return std::get<Answer>(answer(scenario));
}

std::string offload_refusal(const Scenario& scenario) {
  try {
    plan_of(scenario);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("the first blocks of each stage are units of their own, and move at the host's link") {
  const Answer two = answered_offload(offloading(8, 2, 3));
  CHECK(two.plan.units == 4);
  CHECK(two.plan.offloaded == std::vector<bool>{true, true, true, false, true, true, true, false});
  CHECK(two.plan.bucket == Bytes{25'000'000});  // gradients are reduced as without
  const Op out{Kind::Offload, 0, 0}, in{Kind::Reload, 0, 0};
  CHECK(two.costs.collective(out, 0).bytes == Bytes{100'000'000});
  CHECK(two.costs.collective(out, 0).time == Time{4'000'000});
  CHECK(two.costs.collective(in, 0).time == Time{4'000'000});
  CHECK(validate(two.timeline, two.schedule, two.costs) == "");
}

TEST_CASE("a step takes longer only where moves do not hide, and holds what is not away") {
  const Answer none = answered_offload(offloading(8, 1, 0)), half = answered_offload(offloading(8, 1, 4));
  CHECK(none.report.makespan == Time{2 * 8 * 9'000'000});
  // Forwards of 3 ms beside offloads of 4: the second to the fifth wait for 0, 1, 1 and 1 ms; reloads hide under 6 ms.
  CHECK(half.report.makespan == Time{2 * 8 * 9'000'000 + 2 * 3 * 1'000'000});
  const auto stash = [](const Answer& of) { return of.report.stages.front().memory.bytes.stash; };
  CHECK(stash(none) == Bytes{800'000'000});
  CHECK(stash(half) == Bytes{400'000'000});  // the last four, under the last forward
  CHECK(most_away(half.memory, half.schedule, 0) == Bytes{400'000'000});
}

TEST_CASE("what cannot be offloaded says why") {
  Scenario scenario = offloading(8, 2, 2);
  scenario.cluster.device.host_link.reset();
  CHECK(offload_refusal(scenario).find("does not say how fast it reaches its host's memory; state its host_link") !=
        std::string::npos);
  CHECK(offload_refusal(offloading(8, 2, 2)).empty());
  const auto refused = [](const auto& change) {
    Scenario other = offloading(8, 2, 2);
    change(other.plan);
    return offload_refusal(other);
  };
  for (const auto& [schedule, why] :
       {std::pair{"bpipe", "moves activations itself"}, std::pair{"chimera", "keeps each stage on several workers"},
        std::pair{"pipedream", "runs without a flush"}}) {
    CAPTURE(schedule);
    const std::string text = refused([&](PlanRequest& plan) { plan.schedule.value = schedule; });
    CHECK(text.find("s.yaml:7:3: plan.offload_layers: ") != std::string::npos);
    CHECK(text.find(why) != std::string::npos);
  }
  CHECK(refused([](PlanRequest& plan) { plan.gradient_sync = GradientSync::Blocking; }).find("block by block") !=
        std::string::npos);
  for (const Partition& partition : {Partition{Fitting{}}, Partition{LeastStep{}}})
    CHECK(refused([&](PlanRequest& plan) {
            plan.partition.value = partition;
          }).find("does not know what waits in another memory; write balanced") != std::string::npos);
  CHECK(refused([](PlanRequest& plan) {
          plan.partition.value = LayerCounts{{2, 6}};
        }) ==
        "s.yaml:7:3: plan.offload_layers: blocks leave one by one where all chunks of layers have as many parts, and "
        "here "
        "one has 2, so that those of stage 1 hold up to 3; write plan.partition: equal_blocks");
}

TEST_CASE("who searches layouts refuses what moves") {
  for (const bool host : {true, false}) {
    Scenario scenario = offloading(8, 4, host ? 1 : 0);
    scenario.plan.schedule.value = host ? "zb_h1" : "bpipe";
    CAPTURE(host);
    scenario.plan.open["stages"] = {};
    CHECK_THROWS_WITH_AS(search(scenario), doctest::Contains("and ask simulate"), InputError);
  }
}

OrderProblem problem_of_offloading(const Scenario& scenario) {
  const CostModel cost(scenario);
  return order_problem(plan_of(scenario), cost);
}

// Forwards of 3 ms beside offloads of 4: of four that leave, the third, fourth and fifth wait for 1 ms each. Gradients of inputs
// take 3 ms: the reloads of the second, third and fourth from the end take 1 ms longer.
TEST_CASE("finder: a pass alone waits for its own blocks on their way, and a micro-batch holds those that stay") {
  for (std::int64_t away = 0; away < 8; ++away) {
    CAPTURE(away);
    Scenario scenario = offloading(8, 1, away);
    scenario.training.micro_batches = Placed<std::int64_t>{1, {}};
    scenario.plan.schedule.value = "zb_h1";
    const OrderProblem problem = problem_of_offloading(scenario);
    REQUIRE(problem.chunks() == 1);
    CHECK(problem.forward[0] ==
          24'000'000 + std::max<std::int64_t>(0, std::min<std::int64_t>(away - 1, 6)) * 1'000'000);
    CHECK(problem.input[0] == 24'000'000 + away * 1'000'000);
    CHECK(problem.weights[0] == 24'000'000);
    CHECK(problem.held[0] == (8 - away) * 100'000'000);
    CHECK(problem.kept_after_input[0] == 800'000'000);
    // With seven the last of them is still leaving when the backward asks for it.
    const std::int64_t pass = problem.forward[0] + problem.input[0] + problem.weights[0];
    CHECK(answered_offload(scenario).report.makespan.value == pass + (away == 7 ? 1'000'000 : 0));
  }
}

TEST_CASE("finder: no order of offloaded blocks is faster in the simulation than its bound says, and files have it") {
  for (const int stages : {2, 4})
    for (const std::int64_t away : {1, 2, 3})
      for (const double speed : {12e9, 25e9, 1e12}) {
        CAPTURE(stages);
        CAPTURE(away);
        CAPTURE(speed);
        Scenario scenario = offloading(4 * stages, stages, away);
        scenario.cluster.device.host_link = Bandwidth{speed};
        scenario.training.micro_batches = Placed<std::int64_t>{2 * stages, {}};
        scenario.plan.schedule.value = "zb_h1";
        const Time named = answered_offload(scenario).report.makespan;
        const ScheduleAnswer found =
            find_schedule_of(scenario, {.cap = {.times_stages = 1.5}, .search = {.evaluations = 500}});
        CHECK(found.answer.report.makespan >= found.bound);
        CHECK(named >= found.bound);
        if (speed == 1e12) CHECK(found.answer.report.makespan <= named);
        Scenario again = scenario;
        again.plan.schedule.value = kGivenSchedule;
        again.plan.given =
            std::make_shared<const GivenSchedule>(parse_schedule_csv(schedule_csv(found.answer.schedule), "a.csv"));
        CHECK(answered_offload(again).timeline.makespan == found.answer.timeline.makespan);
      }
}

// One stage of eight blocks, 1F1B: a reload hides under the whole backward before it, as it can't under a gradient of the input.
TEST_CASE(
    "finder: of offloaded blocks a bound is said to be that of backwards in two parts, and the plan's own step is "
    "told") {
  Scenario scenario = offloading(8, 1, 4);
  const Time own = answered_offload(scenario).report.step_time;
  const ScheduleAnswer found = find_schedule_of(scenario, {.search = {.evaluations = 500}});
  CHECK(found.planned == "1f1b");
  CHECK(found.planned_step == own);
  CHECK(own < found.bound);
  CHECK(found.bound == found.value());
  CHECK(found_order_text(found, {}).find("no order with backwards in two parts is better") != std::string::npos);
}

TEST_CASE("finder: a bound with recomputations holds where these run before the gradient arrives") {
  for (const int micro_batches : {1, 2, 8}) {
    Scenario scenario = offloading(4, 4, 0);
    scenario.training.micro_batches = Placed<std::int64_t>{micro_batches, {}};
    scenario.plan.schedule.value = "zb_h1";
    scenario.plan.recompute.value = {Recompute::Full};
    for (const bool but_the_last : {false, true}) {
      scenario.plan.recompute_except_last = but_the_last;
      const ScheduleAnswer found = find_schedule_of(scenario, {.search = {.evaluations = 500}});
      CHECK(found.bound <= answered_offload(scenario).report.makespan);
      CHECK(found.bound <= found.answer.report.makespan);
      CHECK(found.value() == found.answer.report.makespan);
    }
  }
}

TEST_CASE("finder: what a knapsack recomputes for the plan's own order stays recomputed") {
  Scenario scenario = offloading(16, 4, 0);
  for (Layer& layer : scenario.model.layers)
    layer.stash = Bytes{300'000'000};
  scenario.cluster.device.memory = Bytes{4'000'000'000};
  scenario.training.micro_batches = Placed<std::int64_t>{8, {}};
  scenario.plan.recompute.value = {Recompute::Knapsack};
  const ScheduleAnswer found =
      find_schedule_of(scenario, {.cap = {.times_stages = 2}, .search = {.evaluations = 2000}});
  REQUIRE(found.pinned.size() >= 1);
  CHECK(found.pinned.back().starts_with("plan.recompute=[{layers: ["));
  CHECK(found.answer.plan.rebuilt == answered_offload(scenario).plan.rebuilt);
  CHECK(found.answer.report.makespan == found.value());
}

}  // namespace
}  // namespace pipewright::tests
