// Chunks cut into units, and gradients that are reduced after every micro-batch.
#include <doctest/doctest.h>

#include "sim/schedules/expand.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"
#include "tests/support/agreed.hpp"

using namespace pipewright::tests;

namespace {

using Names = std::vector<std::string>;

Names names(const std::vector<Op>& ops) {
  Names all;
  for (const Op& op : ops)
    all.push_back(label(op));
  return all;
}

Schedule generated(std::string_view name, const ScheduleShape& shape) {
  const ScheduleRule* rule = find_schedule(name);
  REQUIRE(rule->refusal(shape) == "");
  Schedule schedule = rule->generate(shape);
  REQUIRE(validate(schedule) == "");
  return schedule;
}

StepCosts priced(const ScheduleShape& shape, std::int64_t forward, std::int64_t backward, std::int64_t gather,
                 std::int64_t reduce) {
  const auto chunks = at(shape.chunks());
  StepCosts costs =
      plain_costs(shape, std::vector<Time>(chunks, Time{forward}), std::vector<Time>(chunks, Time{backward}), Time{});
  if (shape.resharding) costs.gathers.assign(chunks, Collective{{1}, Time{gather}, {}});
  costs.collectives.assign(chunks, {Collective{{1}, Time{reduce}, {}}});
  costs.ready_before_end.assign(chunks, {Time{}});
  return costs;
}

}  // namespace

TEST_CASE("units: forwards go through them from the first, backwards from the last behind their own recomputation") {
  const Schedule schedule = generated("gpipe", {.stages = 1, .micro_batches = 1, .recompute = {true}, .units = 2});
  CHECK(names(schedule.positions[0].compute) == Names{"0F0", "1F0", "1R0", "1B0", "0R0", "0B0", "1U0", "0U0"});
}

TEST_CASE("units: a stage has those that follow one another, in every schedule with a flush") {
  const Schedule schedule = generated("1f1b", {.stages = 2, .micro_batches = 1, .units = 2});
  CHECK(names(schedule.positions[0].compute) == Names{"0F0", "1F0", "1B0", "0B0", "1U0", "0U0"});
  CHECK(names(schedule.positions[1].compute) == Names{"2F0", "3F0", "3B0", "2B0", "3U0", "2U0"});
  // Split backwards: the weights' gradients from the last unit on, too.
  const Schedule split = generated("zb_h1", {.stages = 1, .micro_batches = 1, .units = 2});
  CHECK(names(split.positions[0].compute) == Names{"0F0", "1F0", "1I0", "0I0", "1W0", "0W0", "1U0", "0U0"});
}

// What one pass after the other takes does not depend on how it is cut, where nothing is exchanged in between.
TEST_CASE("units: uncut and cut stages take as long") {
  for (const ScheduleRule& rule : schedules()) {
    if (!rule.flush || both_ways(rule.chunk_order)) continue;
    ScheduleShape shape{.stages = 2, .micro_batches = 4, .chunk_order = rule.chunk_order};
    if (rule.chunks > 0) shape.virtual_stages = rule.chunks;
    if (!rule.refusal(shape).empty()) shape.stages = 1;
    if (!rule.refusal(shape).empty()) continue;
    CAPTURE(rule.name);
    ScheduleShape cut = shape;
    cut.units = 3;
    const auto step = [&](const ScheduleShape& of, std::int64_t forward, std::int64_t backward) {
      const auto chunks = at(of.chunks());
      const Schedule schedule = generated(rule.name, of);
      return static_order(schedule, plain_costs(of, std::vector<Time>(chunks, Time{forward}),
                                                std::vector<Time>(chunks, Time{backward}), Time{7}))
          .makespan;
    };
    CHECK(step(shape, 12, 24) == step(cut, 4, 8));
  }
}

TEST_CASE("reduced after every micro-batch: a round for each, and the update behind all of them") {
  const ScheduleShape shape{.stages = 1, .micro_batches = 2, .data_parallel = 2, .units = 2, .reduce_each = true};
  const Schedule schedule = generated("1f1b", shape);
  CHECK(names(schedule.positions[0].compute) ==
        Names{"0F0", "1F0", "1B0", "0B0", "0F1", "1F1", "1B1", "0B1", "1U0", "0U0"});
  CHECK(names(schedule.positions[0].communication[kReductions]) == Names{"1AR0.0", "0AR0.0", "1AR1.0", "0AR1.0"});
  // Forwards of 3, backwards of 6: micro-batch 0 has its gradients at 12 and 18, micro-batch 1 at 30 and 36.
  const Timeline timeline = agreed_timeline(schedule, priced(shape, 3, 6, 0, 2));
  const auto& reduced = timeline.workers[0].communication[kReductions];
  CHECK(reduced[0] == Span{Time{12}, Time{14}});
  CHECK(reduced[1] == Span{Time{18}, Time{20}});
  CHECK(reduced[2] == Span{Time{30}, Time{32}});
  CHECK(timeline.makespan == Time{38});
  // Reductions of 20 follow one another from 12 on; the first update waits for the third of them, the last for all.
  const Timeline slow = agreed_timeline(schedule, priced(shape, 3, 6, 0, 20));
  CHECK(slow.workers[0].compute[8].start == Time{72});
  CHECK(slow.makespan == Time{92});
}

TEST_CASE("reduced after every micro-batch: a round that is missing, twice or of no micro-batch is named") {
  const Schedule good =
      generated("1f1b", {.stages = 1, .micro_batches = 2, .data_parallel = 2, .units = 2, .reduce_each = true});
  const auto fault = [&](const auto& change) {
    Schedule schedule = good;
    change(schedule.positions[0].communication[kReductions]);
    return validate(schedule);
  };
  CHECK(fault([](auto& ops) { ops.pop_back(); }).find("3 all-reduces for 4 buckets") != std::string::npos);
  CHECK(fault([](auto& ops) { ops[3] = ops[2]; }).find("1AR1.0 stands in the list twice") != std::string::npos);
  CHECK(fault([](auto& ops) { ops[3].micro_batch = 2; }).find("round or bucket that is not its own") !=
        std::string::npos);
}

// [FSDP23] section 3.3: gathers of 2, forwards of 3, backwards of 6, reductions of 2, four units. Only the first gather
// and the last reduction show: the backward of micro-batch 0 ends with the unit that the next forward reads first.
TEST_CASE("sharded, four units, two micro-batches: 2 + 36 + 36 + 2") {
  const ScheduleShape shape{
      .stages = 1, .micro_batches = 2, .data_parallel = 2, .units = 4, .resharding = Resharding{}, .reduce_each = true};
  const Schedule schedule = generated("1f1b", shape);
  const Timeline timeline = agreed_timeline(schedule, priced(shape, 3, 6, 2, 2));
  CHECK(timeline.makespan == Time{2 + 36 + 36 + 2});
}
