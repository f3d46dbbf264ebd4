// Cells that run at once (plan.pairs: fused): which plans have none, and what is said where they change nothing.
#include <string>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include "planner/search/search.hpp"
#include "planner/what_if/explanation.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/uniform_scenario.hpp"

namespace pipewright::tests {
namespace {

Scenario fused(const std::string& schedule = "dualpipev", int virtual_stages = 2) {
  Scenario scenario = uniform_scenario();
  scenario.plan.schedule.value = schedule, scenario.plan.virtual_stages.value = virtual_stages;
  scenario.plan.pairs = {Pairs::Fused, {"s.yaml", 9, 3}};
  return scenario;
}

std::vector<std::string> warnings(const Scenario& scenario) {
  return options_without_effect(scenario, plan_of(scenario));
}

TEST_CASE("plans whose cells cannot run at once are refused, with a way out") {
  CHECK(error_of(fused()) == "no error");
  Scenario scenario = fused();
  scenario.training.zero = 3;
  scenario.plan.data_parallel.value = 2;
  CHECK(error_of(scenario) ==
        "s.yaml:9:3: plan.pairs: fused does not go with training.zero: 3, whose weights are gathered for one op at a "
        "time; write serial");
  scenario = fused();
  scenario.training.global_batch_size = Placed<std::int64_t>{23, {}};
  scenario.training.micro_batch_size = Placed<std::int64_t>{2, {}};
  scenario.training.ragged = true;
  scenario.training.micro_batches.reset();
  CHECK(
      error_of(scenario).starts_with("s.yaml:9:3: plan.pairs: fused needs micro-batches of one size, and the last one "
                                     "has 1 samples instead of 2"));
}

TEST_CASE("a search refuses cells that run at once") {
  Scenario scenario = fused();
  scenario.plan.open["stages"] = {};
  CHECK_THROWS_WITH_AS(search(scenario, {}),
                       doctest::Contains("s.yaml:9:3: plan.pairs: fused: the search counts the ops of dualpipev"),
                       InputError);
  scenario.plan.pairs.value = Pairs::Serial;
  CHECK(std::holds_alternative<SearchAnswer>(search(scenario, {})));
}

TEST_CASE("a stated time of pairs is the time of pairs") {
  Scenario scenario = fused();
  Scenario serial = scenario;
  serial.plan.pairs.value = Pairs::Serial;  // no token is under way: all that is left is that both ops of a cell wait
  CHECK(priced(scenario).report.step_time >= priced(serial).report.step_time);
  scenario.plan.pair_time = Placed<Time>{Time{1}, {}};
  CHECK(priced(scenario).report.step_time < priced(fused()).report.step_time);
}

TEST_CASE("what changes nothing about cells is said") {
  CHECK(warnings(fused()).empty());
  CHECK(warnings(fused("1f1b", 1)) ==
        std::vector<std::string>{"plan.pairs: fused has no effect: 1f1b has no cell of a forward and a backward"});
  Scenario scenario = fused();
  scenario.plan.exchange_share.value = 0.15;
  CHECK(warnings(scenario) ==
        std::vector<std::string>{"plan.exchange_share has no effect: no token is sent; it needs expert_parallel"});
  scenario.plan.pair_time = Placed<Time>{Time{1000}, {}};
  CHECK(warnings(scenario) ==
        std::vector<std::string>{"plan.exchange_share has no effect: plan.pair_time says how long a cell takes"});
  scenario.plan.pairs.value = Pairs::Serial;
  CHECK(warnings(scenario) ==
        std::vector<std::string>{"plan.pair_time and exchange_share have no effect: they need plan.pairs: fused"});
}

}  // namespace
}  // namespace pipewright::tests
