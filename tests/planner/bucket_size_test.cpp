#include "planner/bucket_size.hpp"

#include <doctest/doctest.h>

#include "planner/find_plan.hpp"
#include "tests/planner/plan_of.hpp"
#include "tests/support/uniform_scenario.hpp"

namespace pipewright::tests {
namespace {

// Six layers of 4 kB on two chunks and four copies, ten rounds.
Scenario rounds_of_ten() {
  Scenario scenario = uniform_scenario({.layers = 6, .stages = 2, .micro_batches = 10});
  for (Layer& layer : scenario.model.layers)
    layer.parameters = 1000;
  scenario.plan.data_parallel.value = 4;
  scenario.plan.schedule.value = "pipedream";
  scenario.plan.bucket = Bytes{4000};
  return scenario;
}

}  // namespace

TEST_CASE("All-reduces are counted by bucket, member and round") {
  const Scenario scenario = rounds_of_ten();
  Plan plan = plan_of(scenario);
  CHECK(all_reduces(plan, scenario, 4) == 240);
  plan.bucket = Bytes{1};  // a layer is never divided
  CHECK(all_reduces(plan, scenario, 4) == 240);
  plan.bucket = Bytes{4001};  // two layers and one, on each chunk
  CHECK(all_reduces(plan, scenario, 4) == 160);
  CHECK(all_reduces(plan, scenario, 2) == 80);
  plan.schedule = "1f1b";
  CHECK(all_reduces(plan, scenario, 4) == 16);
  plan.data_parallel = 1;
  CHECK(all_reduces(plan, scenario, 1) == 0);
}

TEST_CASE("Buckets double until their all-reduces are few enough, and one sentence says so") {
  const Scenario scenario = rounds_of_ten();
  Plan plan = plan_of(scenario);
  coarsen_buckets(plan, scenario, 4, 240);
  CHECK(plan.bucket == Bytes{4000});
  CHECK(coarsened_buckets(plan, scenario).empty());
  coarsen_buckets(plan, scenario, 4, 200);
  CHECK(plan.bucket == Bytes{8000});
  CHECK(coarsened_buckets(plan, scenario) ==
        "plan.bucket: buckets of 4 kB make more all-reduces than one run simulates, so gradients travel in buckets of "
        "8 kB");
  coarsen_buckets(plan, scenario, 4, 1);  // one bucket per chunk is the end
  CHECK(all_reduces(plan, scenario, 4) == 80);
}

TEST_CASE("A plan with more all-reduces than a run simulates has larger buckets, not an error") {
  Scenario scenario = uniform_scenario({.layers = 4096, .stages = 2, .micro_batches = 3000});
  for (Layer& layer : scenario.model.layers)
    layer.parameters = 1000;
  scenario.plan.data_parallel.value = 2;
  scenario.plan.schedule.value = "pipedream";
  scenario.plan.bucket = Bytes{4000};
  const Plan plan = plan_of(scenario);  // 4096 * 2 * 3000 = 24.6 million, of at most 16.8
  CHECK(plan.bucket == Bytes{8000});
  CHECK(all_reduces(plan, scenario, 2) <= kMostOps);
}

// 128 stages of 512 copies are 196 608 chunks' ops per micro-batch if every copy counts: 85 micro-batches at most.
TEST_CASE("Copies that run alike count once where ops are too many") {
  Scenario scenario = uniform_scenario({.layers = 128, .devices = 128 * 512, .stages = 128, .micro_batches = 100});
  scenario.plan.data_parallel.value = 512;
  CHECK(plan_of(scenario).micro_batches == 100);
}

}  // namespace pipewright::tests
