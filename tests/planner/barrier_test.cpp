// plan.barrier: none, and who does not go with it.
#include <string>

#include <doctest/doctest.h>

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

}  // namespace pipewright::tests
