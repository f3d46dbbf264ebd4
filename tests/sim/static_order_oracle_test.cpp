// Static-order engine against the equations solved the slow way: every start and end of every op and transfer.
#include <map>
#include <random>
#include <string_view>

#include <doctest/doctest.h>

#include "core/plan/given_schedule.hpp"
#include "sim/schedules/table.hpp"
#include "sim/simulate.hpp"
#include "sim/static_order.hpp"
#include "tests/support/oracle_engine.hpp"
#include "tests/support/random_costs.hpp"
#include "tests/support/random_links.hpp"
#include "tests/support/rounds.hpp"

namespace pipewright::tests {
namespace {

int below(int limit, std::mt19937& random) {
  return static_cast<int>(random() % static_cast<unsigned>(limit));
}

ScheduleShape random_shape(std::mt19937& random) {
  ScheduleShape shape;
  shape.stages = 1 + below(4, random);
  shape.virtual_stages = 1 + (below(3, random) == 0 ? 1 + below(2, random) : 0);
  shape.micro_batches = shape.virtual_stages > 1 ? shape.stages * (1 + below(3, random)) : 1 + below(9, random);
  shape.data_parallel = 1 + below(3, random) / 2;
  shape.recompute_except_last = below(2, random) == 0;
  shape.blocking_sync = below(2, random) == 0;
  for (int k = 0; k < shape.stages; ++k) {
    shape.replicas.push_back(shape.virtual_stages > 1 || below(2, random) == 0 ? 1 : 1 + below(3, random));
    shape.recompute.push_back(below(3, random) == 0);
  }
  for (int v = 0; v < shape.chunks(); ++v)
    shape.buckets.push_back(1 + below(3, random));
  if (shape.micro_batches % 2 == 1 && shape.chunks() > 1) shape.tied = {{0, VirtualStageId{shape.chunks() - 1}}};
  shape.norm = (shape.stages + shape.micro_batches / 2) % 2 == 0;
  return shape;
}

}  // namespace

TEST_CASE("the static engine solves the equations of random schedules: every op and every transfer") {
  std::mt19937 random(20240611);
  int runs = 0;
  while (runs < rounds(1500)) {
    const ScheduleShape shape = random_shape(random);
    const StepCosts costs = random_costs(shape, random, runs % 2 == 0 ? Wires::Chain : Wires::Skips);
    for (const ScheduleRule& rule : schedules()) {
      if (!rule.refusal(shape).empty()) continue;
      const Schedule schedule = rule.generate(shape);
      const Timeline expected = oracle_timeline(schedule, costs), found = static_order(schedule, costs);
      CAPTURE(rule.name);
      CAPTURE(runs);
      CHECK(found.makespan == expected.makespan);
      CHECK(static_order_makespan(schedule, costs) == expected.makespan);
      CHECK(found.workers == expected.workers);
      CHECK(found.transfers == expected.transfers);
      CHECK(validate(expected, schedule, costs) == "");
      ++runs;
    }
  }
}

TEST_CASE("the static engine solves the equations where chunks lie there and back, or both ways" *
          doctest::test_suite("all combinations")) {
  std::mt19937 random(20261126);
  std::map<std::string_view, int> runs;
  for (int seed = 0; seed < full_rounds(600); ++seed) {
    const Schedule schedule = random_schedule(random);
    if (schedule.shape.chunk_order == ChunkOrder::Loop) continue;
    CAPTURE(schedule.name);
    CAPTURE(seed);
    REQUIRE(validate(schedule) == "");
    const StepCosts costs = random_costs(schedule.shape, random, seed % 2 == 0 ? Wires::Chain : Wires::Skips);
    const Timeline expected = oracle_timeline(schedule, costs), found = static_order(schedule, costs);
    CHECK(found.makespan == expected.makespan);
    CHECK(static_order_makespan(schedule, costs) == expected.makespan);
    CHECK(found.workers == expected.workers);
    CHECK(found.transfers == expected.transfers);
    CHECK(validate(expected, schedule, costs) == "");
    ++runs[find_schedule(schedule.name)->name];
  }
  for (const ScheduleRule& rule : schedules())
    if (rule.chunk_order != ChunkOrder::Loop) CHECK(runs[rule.name] > 15);
  CHECK(runs[kGivenSchedule] > 15);  // dealt by a list
}

}  // namespace pipewright::tests
