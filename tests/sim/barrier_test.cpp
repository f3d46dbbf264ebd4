// Steps in a row without a barrier between them, as one run: each stage goes on with the next step when it has ended its
// own.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/plan/given_schedule.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"
#include "sim/summarize.hpp"

namespace pipewright::tests {
namespace {

struct BarrierPasses {
  Time forward, input, weights, hop;
};

StepCosts costs_in_a_row(const ScheduleShape& shape, const BarrierPasses& passes) {
  const auto chunks = static_cast<std::size_t>(shape.chunks());
  StepCosts costs = plain_costs(shape, std::vector<Time>(chunks, passes.forward),
                                std::vector<Time>(chunks, passes.input + passes.weights), passes.hop);
  for (auto* const durations : {&costs.duration, &costs.duration_last})
    for (std::size_t v = 0; v < chunks; ++v) {
      (*durations)[v * kKinds + static_cast<std::size_t>(Kind::B)] = passes.input;
      (*durations)[v * kKinds + static_cast<std::size_t>(Kind::W)] = passes.weights;
    }
  return costs;
}

// As many steps of that order, as the order of one step with as many micro-batches.
Time makespan_of_steps(const Schedule& schedule, int steps, const BarrierPasses& passes) {
  const ScheduleShape& one = schedule.shape;
  auto order = std::make_shared<GivenSchedule>();
  order->stages = one.stages, order->virtual_stages = one.virtual_stages;
  order->micro_batches = steps * one.micro_batches, order->chunk_order = one.chunk_order;
  for (const Lane& lane : schedule.positions) {
    std::vector<Op>& ops = order->compute.emplace_back();
    for (int step = 0; step < steps; ++step)
      for (Op op : lane.compute) {
        if (op.kind == Kind::Update) continue;
        op.micro_batch += static_cast<std::uint32_t>(step * one.micro_batches);
        ops.push_back(op);
      }
  }
  ScheduleShape shape = one;
  shape.micro_batches = order->micro_batches, shape.given = order;
  const Schedule all = find_schedule("file")->generate(shape);
  REQUIRE(validate(all) == "");
  return static_order(all, costs_in_a_row(shape, passes)).makespan;
}

Time span_of(const LaneTimes& worker) {
  return worker.compute.back().end - worker.compute.front().start;
}

}  // namespace

TEST_CASE("a step takes the longest span of a stage where none waits for a barrier: ZB-H2's 24 instead of 27") {
  Plan plan;
  plan.barrier.value = Barrier::None;
  const BarrierPasses unit{{1}, {1}, {1}, {0}};
  const ScheduleShape shape{.stages = 4, .micro_batches = 8};
  const Schedule schedule = find_schedule("zb_h2")->generate(shape);
  const Timeline timeline = static_order(schedule, costs_in_a_row(shape, unit));
  CHECK(timeline.makespan == Time{27});
  CHECK(step_span(plan, timeline) == Time{24});
  CHECK(step_span(Plan{}, timeline) == Time{27});
  for (const int steps : {1, 2, 3, 10, 100})
    CHECK(makespan_of_steps(schedule, steps, unit) == Time{24 * steps + 3});
}

TEST_CASE("steps in a row grow by the longest span each, wherever it is that of stage 0 or all of it is work") {
  Plan plan;
  plan.barrier.value = Barrier::None;
  int exact = 0, shorter = 0, all = 0;
  for (const ScheduleRule& rule : schedules()) {
    if (!rule.flush || !rule.splits_backward || both_ways(rule.chunk_order)) continue;
    for (const int K : {2, 3, 4, 6})
      for (const int M : {2 * K, 3 * K})
        for (const BarrierPasses& passes : {BarrierPasses{{1}, {1}, {1}, {0}}, BarrierPasses{{4}, {5}, {3}, {0}},
                                            BarrierPasses{{10}, {12}, {8}, {1}}, BarrierPasses{{7}, {9}, {2}, {3}}}) {
          ScheduleShape shape{.stages = K, .micro_batches = M, .chunk_order = rule.chunk_order};
          shape.virtual_stages = rule.facts.takes_chunks ? 2 : 1;
          if (!rule.refusal(shape).empty()) continue;
          const Schedule schedule = rule.generate(shape);
          const Timeline timeline = static_order(schedule, costs_in_a_row(shape, passes));
          const Time span = step_span(plan, timeline),
                     work = std::int64_t{shape.virtual_stages * M} * (passes.forward + passes.input + passes.weights);
          const Time growth = makespan_of_steps(schedule, 12, passes) - makespan_of_steps(schedule, 11, passes);
          CAPTURE(rule.name);
          CAPTURE(K);
          CAPTURE(M);
          CAPTURE(passes.hop.value);
          CHECK(span <= timeline.makespan);
          CHECK(growth <= span);
          CHECK(growth >= work);
          if (span == span_of(timeline.workers.front()) || span == work) CHECK(growth == span), ++exact;
          shorter += span < timeline.makespan, ++all;
        }
  }
  CHECK(all > 100);
  CHECK(exact * 2 > all);
  CHECK(shorter * 4 > all);
}

TEST_CASE("a channel that is busy for longer than any stage sets the pace") {
  Plan plan;
  plan.barrier.value = Barrier::None;
  Timeline timeline;
  timeline.workers.resize(2);
  timeline.workers[0].compute = {{Time{0}, Time{4}}};
  timeline.workers[1].compute = {{Time{20}, Time{25}}};
  timeline.workers[1].communication[0] = {{Time{25}, Time{27}}};
  timeline.makespan = Time{27};
  CHECK(step_span(plan, timeline) == Time{7});
  Transfer transfer;
  transfer.from = 0, transfer.to = 1;
  transfer.start = Time{4}, transfer.sent = Time{12};
  timeline.transfers.push_back(transfer);
  CHECK(step_span(plan, timeline) == Time{8});
}

}  // namespace pipewright::tests
