// The compiled order against the worklist: the same makespan of random schedules, whatever the prices.
#include "sim/compiled_order.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include <doctest/doctest.h>

#include "sim/schedules/table.hpp"
#include "tests/support/random_costs.hpp"
#include "tests/support/random_links.hpp"
#include "tests/support/rounds.hpp"
#include "tests/support/worklist.hpp"

using namespace pipewright::tests;

TEST_CASE("an order compiled once gives the worklist's makespan under any prices") {
  std::mt19937 random(7);
  std::map<std::string, int> compiled;
  for (int run = 0; run < rounds(4000); ++run) {
    const Schedule schedule = random_schedule(random);
    CAPTURE(run);
    CAPTURE(schedule.name);
    std::optional<CompiledOrder> order;
    const Wires wires = run % 3 == 0 ? Wires::Skips : Wires::Chain;  // skips: other ones at each price
    for (int prices = 0; prices < 3; ++prices) {
      StepCosts costs = random_costs(schedule.shape, random, wires, run % 10 == 0 ? 1 : 30);
      if (run % 4 < 2) costs.duration_last = costs.duration;
      if (run % 8 < 4) costs.messages_last = costs.messages;
      if (!order || wires == Wires::Skips) order = CompiledOrder::of(schedule, costs);
      REQUIRE(order->is_of(costs));
      CHECK(order->makespan(costs) == worklist(schedule, costs).makespan);
      ++compiled[schedule.name];
    }
  }
  for (const ScheduleRule& rule : schedules())
    CHECK(compiled[std::string(rule.name)] > rounds(24) / 2);
}

// Swaps two neighbours in a list where that leaves a schedule: its steady state, if it has one, gets a gap.
void disturb(Schedule& schedule, std::mt19937& random) {
  std::vector<Op>& ops = schedule.positions[static_cast<int>(random() % schedule.positions.size())].compute;
  const std::size_t i = 1 + random() % (ops.size() - 1);
  if (ops[i].kind == Kind::Update) return;
  std::swap(ops[i - 1], ops[i]);
  if (validate(schedule) != "") std::swap(ops[i - 1], ops[i]);
}

TEST_CASE("a steady state is kept as few records, and times are those of the worklist, disturbed or not") {
  std::mt19937 random(17);
  int steady = 0;
  const auto rules = schedules();
  for (int run = 0; run < rounds(1000); ++run) {
    const ScheduleRule& rule = rules[random() % rules.size()];
    const auto below = [&](unsigned limit) { return static_cast<int>(random() % limit); };
    ScheduleShape shape{.stages = 1 + below(5), .data_parallel = 1 + below(2), .chunk_order = rule.chunk_order};
    if (both_ways(rule.chunk_order)) shape.stages = 2 + 2 * below(2);
    if (rule.facts.takes_chunks) shape.virtual_stages = rule.chunks > 0 ? rule.chunks : 2;
    if (rule.facts.states_slices) shape.slices = 1 + below(3);
    shape.micro_batches = shape.stages * shape.slices * (10 + below(20));
    if (below(3) == 0) shape.recompute.assign(static_cast<std::size_t>(shape.stages), true);
    if (!rule.flush || rule.finds_order || !rule.refusal(shape).empty()) continue;
    Schedule schedule = rule.generate(shape);
    for (int times = below(3); times > 0; --times)
      disturb(schedule, random);
    CAPTURE(run);
    CAPTURE(schedule.name);
    std::optional<CompiledOrder> order;
    for (int prices = 0; prices < 2; ++prices) {
      StepCosts costs = random_costs(shape, random, Wires::Chain, 30);
      if (below(2) == 0) add_slices(costs, random, 30);
      if (!order) order = CompiledOrder::of(schedule, costs);
      const Timeline expected = worklist(schedule, costs), timeline = order->timeline(schedule, costs);
      CHECK(order->makespan(costs) == expected.makespan);
      CHECK((timeline.workers == expected.workers));
      CHECK((timeline.transfers == expected.transfers));
    }
    std::size_t ops = 0;
    for (const Lane& lane : schedule.positions)
      ops += lane.compute.size();
    steady += 2 * order->records() < ops ? 1 : 0;
  }
  CHECK(steady > rounds(250));
  // GPipe's last stage ends before the others, and nothing runs as long as its all-reduce.
  for (int micro_batches = 60; micro_batches < 80; ++micro_batches) {
    const ScheduleShape shape{.stages = 4, .micro_batches = micro_batches, .data_parallel = 2};
    StepCosts costs = random_costs(shape, random);
    costs.collectives[VirtualStageId{3}][0].time = Time{100'000};
    const Schedule schedule = find_schedule("gpipe")->generate(shape);
    CHECK(CompiledOrder::of(schedule, costs).makespan(costs) == worklist(schedule, costs).makespan);
  }
  const StepCosts costs = random_costs({.stages = 8, .micro_batches = 2048}, random);
  const Schedule schedule = find_schedule("1f1b")->generate(costs.shape);
  const auto order = CompiledOrder::of(schedule, costs);
  CHECK(order.records() < 1000);
  CHECK(order.makespan(costs) == worklist(schedule, costs).makespan);
}

TEST_CASE("an order is not that of other passes, and is that of other buckets and copies") {
  const ScheduleShape shape{.stages = 3, .micro_batches = 4, .data_parallel = 2};
  const auto costs_of = [](const ScheduleShape& of) {
    const auto chunks = static_cast<std::size_t>(of.chunks());
    return plain_costs(of, std::vector<Time>(chunks, Time{1}), std::vector<Time>(chunks, Time{2}), Time{1});
  };
  const StepCosts costs = costs_of(shape);
  const CompiledOrder order = CompiledOrder::of(find_schedule("1f1b")->generate(shape), costs);
  CHECK(order.is_of(costs));
  for (const auto& change : {+[](ScheduleShape& s) { s.micro_batches = 5; }, +[](ScheduleShape& s) { s.stages = 4; },
                             +[](ScheduleShape& s) {
                               s.recompute = {true, false, false};
                             },
                             +[](ScheduleShape& s) { s.slices = 2; }, +[](ScheduleShape& s) { s.data_parallel = 1; },
                             +[](ScheduleShape& s) {
                               s.buckets = {1, 0, 1};
                             },
                             +[](ScheduleShape& s) { s.resharding = Resharding{}; },
                             +[](ScheduleShape& s) {
                               s.replicas = {2, 1, 1};
                             }}) {
    ScheduleShape other = shape;
    change(other);
    CHECK_FALSE(order.is_of(costs_of(other)));
  }
  ScheduleShape alike = shape;
  alike.data_parallel = 3, alike.buckets = {2, 1, 3};
  const StepCosts of_alike = costs_of(alike);
  CHECK(order.is_of(of_alike));
  CHECK(order.makespan(of_alike) == worklist(find_schedule("1f1b")->generate(alike), of_alike).makespan);
  StepCosts fewer = costs;
  fewer.edges.pop_back();
  CHECK_FALSE(order.is_of(fewer));
}

TEST_CASE("the order of each kind of schedule is that of its own prices") {
  for (const ScheduleRule& rule : schedules()) {
    ScheduleShape shape{.stages = 2, .micro_batches = 4, .chunk_order = rule.chunk_order};
    if (rule.chunks > 0) shape.virtual_stages = rule.chunks;
    if (!rule.refusal(shape).empty()) continue;
    CAPTURE(rule.name);
    const auto chunks = static_cast<std::size_t>(shape.chunks());
    const StepCosts costs =
        plain_costs(shape, std::vector<Time>(chunks, Time{1}), std::vector<Time>(chunks, Time{2}), Time{1});
    CHECK(CompiledOrder::of(rule.generate(shape), costs).is_of(costs));
  }
}

TEST_CASE("makespans of one kind of schedule are those of the worklist") {
  std::mt19937 random(11);
  for (int run = 0; run < rounds(400); ++run) {
    const Schedule first = random_schedule(random);
    const ScheduleRule& rule = *find_schedule(first.name);
    Makespans makespan(rule);
    for (int prices = 0; prices < 4; ++prices) {
      ScheduleShape shape = first.shape;
      if (prices == 2) shape.recompute.assign(static_cast<std::size_t>(shape.stages), prices % 2 == 0);
      const Wires wires = run % 2 == 0 ? Wires::Chain : Wires::Skips;
      const StepCosts costs = random_costs(shape, random, wires, 30);
      CHECK(makespan(costs) == worklist(rule.generate(shape), costs).makespan);
    }
  }
}

TEST_CASE("orders of more slots than 16 bits name, and of more pairs of holders than a table has") {
  std::mt19937 random(5);
  const auto same = [&](const char* name, const ScheduleShape& shape) {
    const StepCosts costs = random_costs(shape, random, Wires::Chain, 30);
    const Schedule schedule = find_schedule(name)->generate(shape);
    const Timeline timeline = CompiledOrder::of(schedule, costs).timeline(schedule, costs),
                   expected = worklist(schedule, costs);
    CHECK(timeline.makespan == expected.makespan);
    CHECK((timeline.workers == expected.workers));
    CHECK((timeline.transfers == expected.transfers));
    CHECK(CompiledOrder::of(schedule, costs).makespan(costs) == expected.makespan);
  };
  same("looped_bfs", {.stages = 2, .virtual_stages = 2, .micro_batches = 33'000});  // that wait for the loop's end
  same("pipedream", {.stages = 2, .micro_batches = 600, .replicas = {150, 149}});
}
