// Orders that are made for the times of a plan (zb_auto, zbv_auto), and how much they may have in flight.
#include <algorithm>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include "planner/answer.hpp"
#include "planner/search/search.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/uniform_scenario.hpp"

namespace pipewright::tests {
namespace {

// Backwards of which the last layers need most, so that stages differ.
Scenario uneven(const std::string& schedule, int chunks) {
  Scenario scenario = uniform_scenario({.layers = 16, .micro_batches = 12});
  scenario.plan.schedule.value = schedule, scenario.plan.virtual_stages.value = chunks;
  for (LayerId i = 8; i < std::ssize(scenario.model.layers); ++i)
    scenario.model.layers[i].backward = Time{3'000'000};
  return scenario;
}

std::int64_t most_in_flight(const Lane& lane) {
  std::int64_t now = 0, most = 0;
  for (const Op& op : lane.compute)
    now += op.kind == Kind::F ? 1 : op.kind == Kind::W ? -1 : 0, most = std::max(most, now);
  return most;
}

TEST_CASE("an order made for a plan is as good as the fixed one with as much in flight, and keeps to its limit") {
  for (const auto& [schedule, fixed, chunks] :
       {std::tuple{"zb_auto", "zb_h1", 1}, std::tuple{"search", "zb_auto", 1},
        std::tuple{"search", "interleaved_zb", 2}, std::tuple{"zbv_auto", "zbv", 2},
        std::tuple{"v_search", "zbv_auto", 2}, std::tuple{"v_auto", "v_half", 2}}) {
    CAPTURE(schedule);
    Scenario scenario = uneven(schedule, chunks);
    const Time known = priced(uneven(fixed, chunks)).report.step_time;
    CHECK(priced(scenario).report.step_time <= known);
    Time before = known;
    for (const std::int64_t most : {4, 6, 8}) {
      scenario.plan.most_in_flight = Placed<std::int64_t>{most, {}};
      const Answer answer = priced(scenario);
      for (const Lane& lane : answer.schedule.positions)
        CHECK(most_in_flight(lane) <= most * chunks);
      CHECK(answer.report.step_time <= before);
      before = answer.report.step_time;
    }
  }
}

TEST_CASE("an order that fills the room it may take says that more room may allow a shorter one") {
  const auto told = [](const Scenario& scenario) {
    const auto result = answer(scenario, {.ignore_memory = true});
    const std::vector<std::string>& hints = std::get<Answer>(result).report.hints;
    const auto line = std::find_if(hints.begin(), hints.end(), [](const std::string& hint) {
      return hint.find("more room (plan.most_in_flight)") != std::string::npos;
    });
    return line == hints.end() ? "" : *line;
  };
  Scenario scenario = uneven("search", 1);
  CHECK(told(scenario) ==
        "the order of search keeps to 4 micro-batches in flight; more room (plan.most_in_flight) may allow a shorter "
        "one, for more memory: --set plan.most_in_flight=8");
  scenario.plan.most_in_flight = Placed<std::int64_t>{12, {}};  // all there are
  CHECK(told(scenario) == "");
  CHECK(told(uneven("zb_h1", 1)) == "");  // no order is found
}

TEST_CASE("orders are found for 80 chunks a stage at most") {
  Scenario scenario = uniform_scenario({.layers = 324, .micro_batches = 2});
  scenario.plan.schedule.value = "search", scenario.plan.virtual_stages.value = 81;
  CHECK(error_of(scenario).find("virtual_stages is 81, more chunks on a stage than orders are found for: set "
                                "plan.virtual_stages: 80 or less") != std::string::npos);
}

TEST_CASE("where less is kept for Ws, more micro-batches fit the limit, and the span is no longer") {
  Scenario scenario = uneven("zb_auto", 1);
  scenario.plan.most_in_flight = Placed<std::int64_t>{6, {}};
  scenario.plan.barrier.value = Barrier::None;
  const Answer whole = priced(scenario);
  scenario.plan.kept_for_weights = Placed<double>{.25, {}};
  const Answer part = priced(scenario);
  CHECK(part.report.step_time <= whole.report.step_time);
  std::int64_t most = 0;
  for (const Lane& lane : part.schedule.positions)
    most = std::max(most, most_in_flight(lane));
  CHECK(most > 6);
}

TEST_CASE("a limit that admits no order is refused, and a search, with a way out") {
  Scenario scenario = uneven("zbv_auto", 2);
  scenario.plan.most_in_flight = Placed<std::int64_t>{1, {"s.yaml", 9, 3}};
  CHECK(error_of(scenario) ==
        "s.yaml:9:3: plan.most_in_flight: zbv_auto found no order with 1 micro-batch in flight; use 4 or more");
  Scenario none = uniform_scenario({.layers = 18, .micro_batches = 8});
  none.plan.schedule.value = "zbv_auto", none.plan.virtual_stages.value = 2, none.plan.stages.value = 2;
  none.plan.most_in_flight = Placed<std::int64_t>{3, {"s.yaml", 9, 3}};
  CHECK(error_of(none) ==
        "no error");  // no round completes with chunks of five and of four layers, but with their mean
  scenario.plan.most_in_flight.reset();
  scenario.plan.open["stages"] = {};
  CHECK_THROWS_WITH_AS(search(scenario, {}), doctest::Contains("makes an order for the times of one plan"), InputError);
}

}  // namespace
}  // namespace pipewright::tests
