// Plans on clusters of several device classes.
#include <algorithm>
#include <random>

#include <doctest/doctest.h>

#include "planner/answer.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "planner/replicated.hpp"
#include "planner/search/search.hpp"
#include "tests/support/input_error.hpp"
#include "tests/support/two_classes.hpp"

using namespace pipewright::tests;

TEST_CASE("suffix_dp plans on several classes: valid, within memory, and no slower than on the first class alone") {
  std::mt19937 random(51);
  int on_both = 0;
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    const Scenario scenario = by_suffix_dp(on_two_classes(random, 6));
    const CostModel cost(scenario);
    const Plan plan = find_plan(scenario, cost);  // validates it
    const Answer answer = price(plan, cost, Engine::Auto);
    CHECK(answer.report.fits);
    on_both +=
        workers_on_class(plan, scenario.cluster, 0) > 0 && workers_on_class(plan, scenario.cluster, 1) > 0 ? 1 : 0;
    Scenario alone = scenario;
    alone.cluster.others.clear(), alone.cluster.nodes = 2;
    const CostModel alone_cost(alone);
    const Plan alone_plan = find_plan(alone, alone_cost);
    const Answer alone_answer = price(alone_plan, alone_cost, Engine::Auto);
    if (alone_answer.report.fits) CHECK(answer.report.samples_per_s >= 0.999 * alone_answer.report.samples_per_s);
  }
  CHECK(on_both > 6);
}

TEST_CASE("The lower bound on several classes is never above what a plan takes, and the search repeats itself") {
  std::mt19937 random(52);
  for (int round = 0; round < 6; ++round) {
    const Scenario scenario = by_suffix_dp(on_two_classes(random, 7));
    const CostModel cost(scenario);
    const Plan shell = shell_of_whole_plans(scenario, cost);
    const ReplicatedAnswer answer = replicated_plans(shell, cost), again = replicated_plans(shell, cost);
    REQUIRE_FALSE(answer.ranking.empty());
    CHECK(answer.lower_bound <= answer.ranking.front().step);
    CHECK(answer.gap() >= 0);
    CHECK(again.ranking.front().plan.device == answer.ranking.front().plan.device);
    CHECK(again.ranking.front().step == answer.ranking.front().step);
    CHECK(again.simulated == answer.simulated);
  }
}

TEST_CASE("A fixed partition runs on any placement that keeps a stage inside a class") {
  std::mt19937 random(53);
  Scenario scenario = on_two_classes(random, 4);
  scenario.plan.stages.value = 2;
  scenario.plan.replicas.value = {2, 1};
  scenario.plan.partition.value = LayerCounts{{3, 1}};
  scenario.plan.placement = std::vector<std::int64_t>{1, 2, 5};
  const auto result = answer(scenario);
  REQUIRE(std::holds_alternative<Answer>(result));
  const Report& report = std::get<Answer>(result).report;
  CHECK(report.stages[1].need.capacity == Bytes{16'000'000});
  CHECK(report.references.front().what == "one new");
  CHECK(report.scaling_efficiency <= 1);
  scenario.plan.placement = std::vector<std::int64_t>{3, 4, 5};
  CHECK(error_of([&] { answer(scenario); }) ==
        "s.yaml:9:1: plan.placement: stage 0 lies on devices 3 (new) and 4 (old), but the workers of a stage, and the "
        "devices of a worker, must be of one class; the classes of this cluster begin at devices 0 (new) and 4 (old): "
        "give every stage devices of one, or write partition: suffix_dp");
}

TEST_CASE("Partitioners and searches that know one class say so, and name the way out") {
  std::mt19937 random(54);
  Scenario scenario = on_two_classes(random, 4);
  scenario.plan.stages.value = 2;
  const std::string out =
      " knows devices of one class, and the cluster has 4 x new + 2 x old; write plan.partition: suffix_dp, "
      "which chooses the class of every stage, or simulate the layers of each stage with plan.placement, or leave out "
      "cluster.other_nodes";
  CHECK(error_of([&] { answer(scenario); }) == "s.yaml:9:1: plan.partition: balanced" + out);
  scenario.plan.partition.value = Fitting{};
  CHECK(error_of([&] { answer(scenario); }) == "s.yaml:9:1: plan.partition: fitting" + out);
  scenario.plan.partition.value = EqualLayers{};
  CHECK(error_of([&] { answer(scenario); }) == "no error");
  scenario.plan.open["stages"] = {};
  CHECK(error_of([&] { search(scenario); }) == "s.yaml:3:1: the search for the best plan" + out);
}
