#include <set>

#include <doctest/doctest.h>

#include "planner/find_plan.hpp"
#include "planner/partitioners/table.hpp"
#include "planner/replicated.hpp"
#include "tests/support/uniform_scenario.hpp"

using namespace pipewright::tests;

TEST_CASE("Every named partition of a scenario is in the table, and every entry can be asked") {
  std::set<std::string_view> asked;
  for (const Partition& request :
       {Partition{Balanced{}}, Partition{Fitting{}}, Partition{LeastStep{}}, Partition{EqualLayers{}},
        Partition{EqualBlocks{}}, Partition{BlockPartition{}}, Partition{SuffixDp{}}}) {
    const Partitioner* partitioner = partitioner_of(request);
    REQUIRE(partitioner != nullptr);
    asked.insert(partitioner->name);
    CHECK(std::holds_alternative<SuffixDp>(request) == (partitioner->kind == Partitioner::Kind::StagesAndCuts));
  }
  CHECK(partitioner_of(LayerCounts{{1}}) == nullptr);
  CHECK(partitioner_of(CutLayers{{1}}) == nullptr);
  std::set<std::string_view> names;
  for (const Partitioner& each : partitioners()) {
    CHECK(names.insert(each.name).second);
    CHECK(find_partitioner(each.name) == &each);
    const bool whole = each.kind == Partitioner::Kind::StagesAndCuts;
    CHECK((each.plans != nullptr) == whole);
    CHECK((each.cut != nullptr) != whole);
  }
  CHECK(names == asked);
  CHECK(find_partitioner("no such thing") == nullptr);
}

// Eight equal layers on four devices in one node: every way to plan whole stages uses what it is given.
TEST_CASE("Partitioners of whole plans give plans that validate, for every one in the table") {
  Scenario scenario = uniform_scenario({.layers = 8, .devices = 4});
  scenario.cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = Bandwidth{100e9}};
  const CostModel cost(scenario);
  Plan shell;
  shell.schedule = "pipedream";
  shell.micro_batches = shell.global_batch_size = 16;
  int asked = 0;
  for (const Partitioner& each : partitioners()) {
    if (each.plans == nullptr) continue;
    CAPTURE(each.name);
    const std::vector<Plan> plans = each.plans(shell, cost);
    REQUIRE(!plans.empty());
    for (const Plan& plan : plans)
      validate(plan, scenario.model, scenario.cluster);
    CHECK(plans.front().positions() == 4);
    ++asked;
  }
  CHECK(asked == 1);
}
