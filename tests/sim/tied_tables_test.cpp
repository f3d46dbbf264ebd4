// All-reduces of tables that several stages hold: when they begin, and who waits for them.
#include <doctest/doctest.h>

#include "sim/compiled_order.hpp"
#include "sim/static_order.hpp"
#include "tests/sim/summed.hpp"
#include "tests/support/agreed.hpp"

using namespace pipewright::tests;

namespace {

Summed tied(const char* name, ScheduleShape shape, std::vector<std::vector<VirtualStageId>> chunks) {
  shape.tied = std::move(chunks);
  return summed(name, std::move(shape));
}

const std::vector<Op>& tables(const Schedule& schedule, int position) {
  return schedule.positions[position].communication[kTables];
}

}  // namespace

// One micro-batch: 3 + 3 + 6 + 6 = 18 of passes on stage 0, whose backward is the last; then 5, then the updates of 1.
TEST_CASE("The table of the first and the last stage: behind the last backward of both") {
  const auto [schedule, costs] = tied("1f1b", {.stages = 3, .micro_batches = 1}, {{0, 2}});
  CHECK(label(tables(schedule, 0).front()) == "0TR0");
  CHECK(label(tables(schedule, 2).front()) == "2TR0");
  CHECK(tables(schedule, 1).empty());
  const Timeline timeline = agreed_timeline(schedule, costs);
  for (const int worker : {0, 2}) {
    CHECK(timeline.workers[at(worker)].communication[kTables] == std::vector<Span>{{Time{27}, Time{32}}});
    CHECK(timeline.workers[at(worker)].compute.back() == Span{Time{32}, Time{33}});
  }
  CHECK(timeline.workers[1].compute.back() == Span{Time{21}, Time{22}});  // waits for nobody
  CHECK(timeline.makespan == Time{33});
  CHECK(CompiledOrder::of(schedule, costs).makespan(costs) == Time{33});
}

// Two copies: the reductions of 2 come first; the table is exchanged in both copies at once.
TEST_CASE("With copies: behind the all-reduce of the gradients") {
  const auto [schedule, costs] = tied("gpipe", {.stages = 2, .micro_batches = 2, .data_parallel = 2}, {{0, 1}});
  const Timeline timeline = agreed_timeline(schedule, costs);
  const Time last = timeline.workers[0].communication[kReductions].back().end;
  for (const LaneTimes& worker : timeline.workers)
    CHECK(worker.communication[kTables] == std::vector<Span>{{last, last + Time{5}}});
  CHECK(timeline.makespan == last + Time{6});
  CHECK(CompiledOrder::of(schedule, costs).makespan(costs) == timeline.makespan);
}

// One table on stages 0 and 2, another one on 1 and 2: stage 2 sums one after the other, the others wait for their own.
TEST_CASE("Two tables of different stages are two sums") {
  const auto [schedule, costs] = tied("1f1b", {.stages = 3, .micro_batches = 1}, {{0, 2}, {1, 2}});
  CHECK(label(tables(schedule, 2)[1]) == "2TR0.1");
  CHECK(tables(schedule, 0).size() == 1);
  const Timeline timeline = agreed_timeline(schedule, costs);
  CHECK(timeline.workers[0].communication[kTables] == std::vector<Span>{{Time{27}, Time{32}}});
  CHECK(timeline.workers[1].communication[kTables] == std::vector<Span>{{Time{32}, Time{37}}});
  CHECK(timeline.workers[0].compute.back().end == Time{33});
  CHECK(timeline.makespan == Time{38});
  CHECK(CompiledOrder::of(schedule, costs).makespan(costs) == Time{38});
}

// Chunks 0 and 3 of a V lie on one worker; the one in between with both.
TEST_CASE("Chunks of one worker take part once") {
  const auto [schedule, costs] = tied("zbv", {.stages = 2, .virtual_stages = 2, .micro_batches = 4}, {{0, 1, 3}});
  CHECK(tables(schedule, 0).size() == 1);
  CHECK(tables(schedule, 1).size() == 1);
  const Timeline timeline = agreed_timeline(schedule, costs);
  CHECK(timeline.makespan ==
        timeline.workers[0].communication[kTables].front().end + Time{2});  // updates of two chunks
}

TEST_CASE("Without a flush no table is exchanged") {
  const auto [schedule, costs] = tied("pipedream", {.stages = 2, .micro_batches = 4}, {{0, 1}});
  for (const Lane& lane : schedule.positions)
    CHECK(lane.communication[kTables].empty());
}

TEST_CASE("Lists without the table's all-reduce, or with a pass behind the update that waits for it, are refused") {
  const auto [good, costs] = tied("1f1b", {.stages = 2, .micro_batches = 2}, {{0, 1}});
  Schedule missing = good;
  missing.positions[1].communication[kTables].clear();
  CHECK(validate(missing) == "worker 1 (stage 1): its tables' stream is not one all-reduce for each table: 1TR0");
  Schedule early = tied("interleaved_1f1b", {.stages = 2, .virtual_stages = 2, .micro_batches = 2}, {{0, 3}}).schedule;
  std::vector<Op>& ops = early.positions[1].compute;
  const auto update =
      std::ranges::find_if(ops, [](const Op& op) { return op.kind == Kind::Update && op.virtual_stage == 3; });
  const auto last = std::find_if(ops.rbegin(), ops.rend(), [](const Op& op) { return op.kind == Kind::BW; });
  std::rotate(last.base() - 1, update, update + 1);
  CHECK(validate(early) == "worker 1 (stage 1): 1B1 stands behind 3U0, which waits for a table of other workers");
}

TEST_CASE("A timeline whose table is exchanged too early, or whose update does not wait for it, is refused") {
  const auto [schedule, costs] = tied("1f1b", {.stages = 2, .micro_batches = 2, .data_parallel = 2}, {{0, 1}});
  const Timeline good = agreed_timeline(schedule, costs);
  const auto fault = [&](const auto& change) {
    Timeline timeline = good;
    for (LaneTimes& worker : timeline.workers)
      change(worker);
    return validate(timeline, schedule, costs);
  };
  CHECK(fault([](LaneTimes& worker) {
          worker.communication[kTables].front().start -= Time{1};
        }).find("starts before all gradients of the table are there") != std::string::npos);
  CHECK(fault([](LaneTimes& worker) {
          worker.communication[kTables].front().end += Time{1};
        }).find("before what it needs has arrived") != std::string::npos);
}
