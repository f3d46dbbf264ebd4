// What a device states of contention, in the prices of a step and in its timeline.
#include <doctest/doctest.h>

#include "tests/planner/plan_of.hpp"
#include "tests/planner/sharded_scenario.hpp"
#include "tests/support/transformer_block.hpp"

using namespace pipewright::tests;

namespace {

// Two units of ZeRO-3 in two copies: forwards of 3 ms, gathers of 2 ms.
Scenario two_units() {
  Scenario scenario = sharded(2, 2, 1);
  scenario.cluster.device.multiprocessors = 132;
  return scenario;
}

// A block of products and of what memory limits, in two copies.
Scenario block() {
  Scenario scenario = block_scenario({}, 2, 2, {});
  scenario.plan.stages.value = 1;
  scenario.plan.data_parallel.value = 2;
  scenario.training.micro_batch_size = Placed<std::int64_t>{1, {}};
  scenario.training.micro_batches = Placed<std::int64_t>{2, {}};
  scenario.cluster.links.kind = LinkKind::Nvswitch;
  scenario.cluster.links.bandwidth = Bandwidth{100e9};
  scenario.cluster.device.multiprocessors = 108;
  return scenario;
}

double slower(const Scenario& scenario, Kind kind) {
  const Answer answer = priced(scenario);
  REQUIRE(answer.costs.contention.has_value());
  return answer.costs.contention->computing[static_cast<std::size_t>(kind)];
}

}  // namespace

TEST_CASE("the unit beside a gather of 2 ms that holds 20 of 132 multiprocessors takes 3.303 ms, not 3") {
  Scenario scenario = two_units();
  const Answer alone = priced(scenario);
  CHECK_FALSE(alone.costs.contention.has_value());
  CHECK(alone.timeline.workers[0].compute[0] == Span{Time{2'000'000}, Time{5'000'000}});

  scenario.cluster.device.contention.multiprocessors = 20;
  const Answer beside = priced(scenario);
  CHECK(beside.timeline.workers[0].compute[0] == Span{Time{2'000'000}, Time{5'303'031}});
  CHECK(beside.timeline.engine_reason == "collectives contend with computing");
  CHECK(validate(beside.timeline, beside.schedule, beside.costs) == "");

  scenario.cluster.device.contention.collective = 1.1;
  const Answer both = priced(scenario);
  CHECK(both.timeline.workers[0].communication[kGathers][1] == Span{Time{2'000'000}, Time{4'200'000}});
  CHECK(both.timeline.workers[0].compute[0] == Span{Time{2'000'000}, Time{5'333'334}});
}

TEST_CASE("where nothing is reduced or gathered nothing contends") {
  Scenario scenario = two_units();
  scenario.training.zero = 0;
  scenario.plan.data_parallel.value = 1;
  scenario.cluster.device.contention = {20, 1.2, 1.1};
  CHECK_FALSE(priced(scenario).costs.contention.has_value());
}

TEST_CASE("multiprocessors slow what is limited by products, memory what memory limits") {
  Scenario products = block(), memory = block();
  products.cluster.device.contention.multiprocessors = 27;  // a quarter
  memory.cluster.device.contention.memory = 1.25;
  // The update moves bytes only; a forward has some of both.
  CHECK(slower(products, Kind::Update) == 1);
  CHECK(slower(memory, Kind::Update) == doctest::Approx(1.25));
  for (const Kind kind : {Kind::F, Kind::BW}) {
    const double by_products = slower(products, kind), by_memory = slower(memory, kind);
    CHECK(by_products > 1.01);
    CHECK(by_memory > 1.01);
    // What is a share x of products and 1 - x of memory: x * 4/3 + (1 - x), and x + (1 - x) * 1.25.
    CHECK((by_products - 1) * 3 + (by_memory - 1) * 4 == doctest::Approx(1));
  }
}

TEST_CASE("a step beside collectives is never shorter, and contention of a factor of 1 changes nothing") {
  for (const double memory : {1.0, 1.2, 2.0}) {
    Scenario scenario = block();
    const Time alone = priced(scenario).timeline.makespan;
    scenario.cluster.device.contention.memory = memory;
    const Time beside = priced(scenario).timeline.makespan;
    CHECK((memory > 1 ? beside >= alone : beside == alone));
  }
}

TEST_CASE("stated times are taken to need the multiprocessors, whatever prices the other layers") {
  for (const CostSourceKind source : {CostSourceKind::Explicit, CostSourceKind::Roofline}) {
    Scenario scenario = two_units();
    scenario.cost = source;
    for (Layer& layer : scenario.model.layers) {
      layer.forward = Time{10'000'000}, layer.backward = Time{20'000'000};
      layer.activation = Bytes{1000};
    }
    scenario.cluster.device.memory_bandwidth = Bandwidth{1e12};
    scenario.cluster.device.peak[scenario.training.precision] = FlopRate{1e12};
    scenario.cluster.device.contention.multiprocessors = 33;  // a quarter
    CHECK(slower(scenario, Kind::F) == doctest::Approx(4.0 / 3));
    CHECK(slower(scenario, Kind::BW) == doctest::Approx(4.0 / 3));
  }
}

TEST_CASE("what takes nothing is no contention") {
  Scenario scenario = two_units();
  scenario.cluster.device.contention.memory = 1.5;  // times that are stated know no memory
  const Answer answer = priced(scenario);
  CHECK_FALSE(answer.costs.contention.has_value());
  CHECK(answer.timeline.makespan == priced(two_units()).timeline.makespan);
}

TEST_CASE("what an all-reduce waits for is computing, not waiting, though computing was slowed behind its start") {
  Scenario scenario = two_units();
  scenario.training.zero = 0;
  scenario.plan.bucket = Bytes{1};  // a bucket a layer
  const auto waiting = [](const Answer& answer) {
    Time sum;
    for (const CriticalPart& part : answer.report.critical_path)
      if (part.kind == CriticalPart::Class::Waiting) sum += part.time;
    return sum;
  };
  CHECK(waiting(priced(scenario)) == Time{});
  scenario.cluster.device.contention.multiprocessors = 66;
  const Answer beside = priced(scenario);
  CHECK(validate(beside.timeline, beside.schedule, beside.costs) == "");
  CHECK(waiting(beside) == Time{});
}
