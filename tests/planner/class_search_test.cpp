// `plan` on clusters of several device classes, and the rows of rankings with replicas.
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "planner/replicated.hpp"
#include "planner/search/explain.hpp"
#include "planner/search/found.hpp"
#include "planner/search/search.hpp"
#include "tests/support/input_error.hpp"
#include "tests/support/two_classes.hpp"

using namespace pipewright::tests;

namespace {

Scenario with_open_replicas(Scenario scenario) {
  for (const char* key : {"stages", "replicas", "partition"})
    scenario.plan.open[key] = {};
  return scenario;
}

SearchAnswer searched(const Scenario& scenario, const SearchOptions& options = {}) {
  auto result = search(scenario, options);
  REQUIRE(std::holds_alternative<SearchAnswer>(result));
  return std::get<SearchAnswer>(std::move(result));
}

std::vector<int> classes_of(const Found& plan) {
  std::vector<int> classes;
  for (StageId k = 0; k < plan.plan.stages; ++k)
    classes.push_back(class_of_stage(plan.plan, plan.scenario->cluster, k));
  return classes;
}

}  // namespace

TEST_CASE("plan on several classes finds what simulate's suffix_dp runs, as a scenario that simulate prices alike") {
  std::mt19937 random(61);
  int on_both = 0;
  for (int round = 0; round < 8; ++round) {
    CAPTURE(round);
    const Scenario scenario = by_suffix_dp(on_two_classes(random, 5));
    const SearchAnswer ranked = searched(scenario);
    const Found& best = ranked.plans.front();
    const CostModel cost(scenario);
    CHECK(best.report.samples_per_s == price(find_plan(scenario, cost), cost, Engine::Auto).report.samples_per_s);
    const CostModel own(*best.scenario);
    CHECK(price(find_plan(*best.scenario, own), own, Engine::Auto).report.step_time == best.report.step_time);
    CHECK(best.report.fits);
    CHECK(ranked.bound > 0);
    CHECK(ranked.gap() >= 0);
    const std::vector<int> classes = classes_of(best);
    on_both += std::set<int>(classes.begin(), classes.end()).size() == 2 ? 1 : 0;
    // plan.replicas: auto asks the same without naming the partition.
    CHECK(searched(with_open_replicas(on_two_classes(random, 4))).plans.front().report.fits);
  }
  CHECK(on_both > 3);
}

TEST_CASE("Two rows of a ranking with replicas differ in what a reader sees") {
  std::mt19937 random(62);
  for (const bool several : {true, false}) {
    Scenario scenario = on_two_classes(random, 8);
    if (!several) scenario.cluster.others.clear(), scenario.cluster.nodes = 4;
    each_device(scenario.cluster, [](Device& device) { device.memory = Bytes{4'000'000'000}; });
    scenario.model.layers.back().parameters = 30'000'000;  // so that replicas of all layers are no answer
    scenario.plan.open["schedule"] = {};
    SearchOptions options;
    options.top = 12;
    const SearchAnswer ranked = searched(with_open_replicas(scenario), options);
    CHECK(ranked.plans.size() > 4);
    std::set<std::tuple<Layout, std::vector<int>, std::vector<int>>> rows;
    for (const Found& each : ranked.plans)
      CHECK(rows.insert({each.layout, each.plan.replicas, classes_of(each)}).second);
    for (std::size_t i = 1; i < ranked.plans.size(); ++i)
      CHECK(ranked.plans[i - 1].value <= ranked.plans[i].value);
  }
}

TEST_CASE("Of plans with the same replicas the ranking keeps the best, as one list would") {
  std::mt19937 random(63);
  for (int round = 0; round < 6; ++round) {
    Scenario scenario = by_suffix_dp(on_two_classes(random, 6));
    scenario.cluster.others.clear();
    const CostModel cost(scenario);
    const Plan shell = shell_of_whole_plans(scenario, cost);
    const ReplicatedAnswer one = replicated_plans(shell, cost, {.top = 1}),
                           many = replicated_plans(shell, cost, {.top = 8});
    std::set<std::vector<int>> seen;
    for (const ReplicatedPlan& each : many.ranking)
      CHECK(seen.insert(each.plan.replicas).second);
    CHECK(many.ranking.front().samples_per_s >= one.ranking.front().samples_per_s);
  }
}

TEST_CASE("Devices of several classes cost what each costs; the cheaper class may be the better answer") {
  std::mt19937 random(64);
  Scenario scenario = by_suffix_dp(on_two_classes(random, 4));
  Plan plan;
  plan.stages = 2, plan.replicas = {2, 1}, plan.device = {0, 1, 4};
  scenario.cluster.device.price_per_hour = 3;
  CHECK(error_of([&] { search(scenario, {.objective = Objective::Cost}); }) ==
        "s.yaml:3:1: cluster: new has a price_per_hour and old has none, so their costs cannot be compared; give both, "
        "or neither");
  scenario.cluster.others[0].device.price_per_hour = 1;
  CHECK(price_per_hour(plan, scenario) == 7);
  // An old device takes twice as long; at a hundredth of the price it is used alone.
  scenario.cluster.device.price_per_hour = 100;
  scenario.cluster.device.memory = scenario.cluster.others[0].device.memory = Bytes{1'000'000'000};
  for (const int each : classes_of(searched(scenario, {.objective = Objective::Cost}).plans.front()))
    CHECK(each == 1);
  scenario.cluster.device.price_per_hour.reset(), scenario.cluster.others[0].device.price_per_hour.reset();
  CHECK(price_per_hour(plan, scenario) == 3 * 3600);
  for (const int each : classes_of(searched(scenario, {.objective = Objective::Cost}).plans.front()))
    CHECK(each == 0);
}

TEST_CASE("Unbeaten plans on several classes: what the classes without the last one do is asked, too") {
  std::mt19937 random(65);
  const Scenario scenario = by_suffix_dp(on_two_classes(random, 5));
  SearchAnswer ranked = searched(scenario);
  add_pareto(scenario, {"memory", "cost"}, {}, ranked);
  REQUIRE_FALSE(ranked.pareto.empty());
  CHECK(ranked.pareto.front().report.samples_per_s == ranked.plans.front().report.samples_per_s);
  bool alone = false;
  for (const Found& each : ranked.pareto) {
    alone |= each.scenario->cluster.classes() == 1;
    CHECK(each.scenario->cluster.device.memory == scenario.cluster.device.memory);
  }
  CHECK(alone);
}

TEST_CASE("On several classes the search for one says so") {
  std::mt19937 random(66);
  Scenario scenario = on_two_classes(random, 4);
  scenario.plan.open["stages"] = {};
  const auto starts = [](const std::string& text, const char* begin) { return text.starts_with(begin); };
  CHECK(starts(error_of([&] { search(scenario); }),
               "s.yaml:3:1: the search for the best plan knows devices of one class, and the cluster has 4 x new + 2 x "
               "old; write plan.partition: suffix_dp, "));
}
