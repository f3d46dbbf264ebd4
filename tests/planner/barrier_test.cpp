// plan.barrier: none, and who does not go with it.
#include <string>

#include <doctest/doctest.h>

#include "core/cost/state_exchange.hpp"
#include "core/cost/step_pricer.hpp"
#include "planner/answer.hpp"
#include "planner/search/search.hpp"
#include "planner/what_if/sensitivity.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/uniform_scenario.hpp"

namespace pipewright::tests {
namespace {

Scenario without_barrier(const std::string& schedule) {
  Scenario scenario = uniform_scenario({.micro_batches = 12});
  scenario.plan.schedule.value = schedule;
  scenario.plan.barrier = {Barrier::None, {"s.yaml", 9, 3}};
  return scenario;
}

}  // namespace

TEST_CASE("without a barrier a step takes the longest span, and its rates and bubble are of that") {
  const Scenario scenario = without_barrier("zb_h2");
  const Answer answer = priced(scenario);
  const Report& report = answer.report;
  // Two layers a stage, forward 2 ms, and 2 ms each of the halves of a backward.
  CHECK(report.step_time == Time{12 * 6'000'000});
  CHECK(report.makespan == Time{12 * 6'000'000 + 3 * 2'000'000});
  CHECK(report.samples_per_s == doctest::Approx(12 / 0.072));
  CHECK(report.bubble_fraction == doctest::Approx(0));
  CHECK(report.bubble_fraction_span == doctest::Approx(0));
  for (const Engine engine : {Engine::StaticOrder, Engine::EventQueue})
    CHECK(repeated_step_time(answer, answer.costs, engine) == report.step_time);
  Scenario flushed = scenario;
  flushed.plan.barrier.value = Barrier::Flush;
  CHECK(priced(flushed).report.step_time == report.makespan);
  CHECK(repeated_step_time(priced(flushed), answer.costs, Engine::StaticOrder) == report.makespan);
}

TEST_CASE("no speed-up of a device is lost or invented without a barrier") {
  const auto answered = answer(without_barrier("zb_h2"), {});
  REQUIRE(std::holds_alternative<Answer>(answered));
  for (const FormulaReport& formula : std::get<Answer>(answered).report.formulas)
    if (formula.quantity == "bubble")
      CHECK(formula.applies.find("no barrier stands between steps") != std::string::npos);
  for (const Sensitivity& each : std::get<Answer>(answered).report.sensitivity)
    CHECK(each.step_time <= Time{12 * 6'000'000});
}

TEST_CASE("what has no barrier, and who compares whole runs, refuses to leave it out, with a way out") {
  CHECK(
      error_of(without_barrier("pipedream")) ==
      "s.yaml:9:3: plan.barrier: none: pipedream has no flush, so that there is no barrier to leave out; leave out the "
      "key");
  Scenario clipped = without_barrier("1f1b");
  clipped.training.clip_grad_norm = 1.0;
  CHECK(error_of(clipped) ==
        "s.yaml:9:3: plan.barrier: none leaves no place for training.clip_grad_norm, whose norm is over all stages; "
        "write post_validation (checked afterwards, at the same price) or flush");
  Scenario scaled = without_barrier("1f1b");
  scaled.training.precision = Precision::Fp16;
  CHECK(error_of(scaled) ==
        "s.yaml:9:3: plan.barrier: none leaves no place for the loss scale of fp16, whose check for overflows is over "
        "all stages; write post_validation (checked afterwards, at the same price) or flush");
  const Time unchecked = priced(without_barrier("1f1b")).report.step_time;
  for (Scenario* const checked : {&clipped, &scaled}) {
    checked->plan.barrier.value = Barrier::PostValidation;
    CHECK(priced(*checked).report.step_time == unchecked);
  }
  Scenario exact = without_barrier("1f1b");
  exact.plan.partition.value = LeastStep{};
  CHECK(error_of(exact) ==
        "s.yaml:9:3: plan.barrier: a step without a flush does not go with partition: exact, which compares whole runs "
        "of a step; write "
        "flush or another partition");
  Scenario searched = without_barrier("zb_h2");
  searched.plan.open["stages"] = {};
  CHECK_THROWS_WITH_AS(search(searched, {}), doctest::Contains("the search bounds and compares whole runs of a step"),
                       InputError);
}

// Two copies of four stages. Trees over 8 devices that are 1 us apart: 3 hops up and 3 down.
TEST_CASE("updates of all stages wait for the norm of clipped gradients, but not where it is looked at afterwards") {
  Scenario scenario = uniform_scenario();
  scenario.cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = Bandwidth{100e9}, .latency = Time{1000}};
  scenario.plan.data_parallel.value = 2;
  const Answer free = priced(scenario);
  CHECK(free.schedule.positions[0].communication[kNorm].empty());
  scenario.training.clip_grad_norm = 1.0;
  const Answer clipped = priced(scenario);
  CHECK(clipped.costs.norm.bytes == Bytes{4});
  CHECK(clipped.costs.norm.time == Time{6'000});
  CHECK(clipped.report.step_time == free.report.step_time + Time{6'000});
  Time last;
  for (const LaneTimes& worker : clipped.timeline.workers)
    last = std::max(last, worker.communication[kReductions].back().end);
  for (const LaneTimes& worker : clipped.timeline.workers)
    CHECK(worker.communication[kNorm] == std::vector<Span>{{last, last + Time{6'000}}});
  CHECK(std::ranges::count(clipped.report.critical_path, "all-reduce of the norm", &CriticalPart::what) == 1);
  const CostModel cost(scenario);
  StepPricer pricer(clipped.plan, cost);
  const StepCosts cut = pricer.costs({clipped.plan.layers.begin(), clipped.plan.layers.end()},
                                     {clipped.plan.recompute.begin(), clipped.plan.recompute.end()}, {});
  CHECK(cut.norm.time == Time{6'000});
  scenario.plan.barrier.value = Barrier::PostValidation;
  CHECK(priced(scenario).schedule.positions[0].communication[kNorm].empty());
  CHECK(priced(scenario).costs.norm.time == Time{});
}

// Copies that run alike are priced once, the norm over all of them; over the devices of a tensor-parallel group, too.
TEST_CASE("the norm is that of all copies and of all devices of a worker") {
  Scenario scenario = uniform_scenario({.devices = 32});
  scenario.cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = Bandwidth{100e9}, .latency = Time{1000}};
  scenario.training.clip_grad_norm = 1.0;
  scenario.plan.data_parallel.value = 8;
  const CostModel cost(scenario);
  const Plan plan = find_plan(scenario, cost);
  const StepCosts folded = folded_costs(plan, cost);
  CHECK(folded.shape.data_parallel < 8);
  CHECK(folded.norm.time == Time{10'000});  // 32 devices: 5 hops
  Plan groups = plan;                       // four devices each on as many
  groups.tensor_parallel = 4, groups.device.resize(8);
  for (DeviceId& device : groups.device)
    device = 4 * device;
  CHECK(norm_of_gradients(groups, cost).time == Time{10'000});
  groups.tensor_parallel = 1;
  CHECK(norm_of_gradients(groups, cost).time == Time{6'000});
  Scenario alone = uniform_scenario({.stages = 1});
  alone.training.clip_grad_norm = 1.0;
  CHECK(priced(alone).schedule.positions[0].communication[kNorm].empty());
  Scenario asynchronous = uniform_scenario();
  asynchronous.training.clip_grad_norm = 1.0, asynchronous.plan.schedule.value = "pipedream";
  CHECK(priced(asynchronous).schedule.positions[0].communication[kNorm].empty());
}

}  // namespace pipewright::tests
