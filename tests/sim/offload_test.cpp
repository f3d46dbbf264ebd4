// Activations in the host's memory: when they leave, when they are back, and what is held meanwhile.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/cost/memory_model.hpp"
#include "sim/event_order.hpp"
#include "sim/schedules/expand.hpp"
#include "sim/schedules/table.hpp"
#include "sim/simulate.hpp"
#include "sim/static_order.hpp"
#include "tests/sim/move_costs.hpp"
#include "tests/support/oracle_engine.hpp"

using namespace pipewright::tests;

namespace {

// One stage of four blocks, of which the first two are offloaded; a forward takes 1, a backward 2.
ScheduleShape four_blocks(int micro_batches) {
  return {.stages = 1, .micro_batches = micro_batches, .units = 4, .offloaded = {true, true, false, false}};
}

}  // namespace

// Two micro-batches, forwards 0 1 2 3 and backwards 3 2 1 0 each. Without moves: 24. Block 2 waits for block 0 to be out,
// block 1 is asked for when the backward of block 2 begins.
TEST_CASE("one is on its way out under a forward, and comes back under the backward before its own") {
  const ScheduleShape shape = four_blocks(2);
  const Schedule schedule = find_schedule("1f1b")->generate(shape);
  REQUIRE(validate(schedule) == "");
  CHECK(move_labels(schedule.positions[0].communication[kOut]) == "0OFFLOAD0 1OFFLOAD0 0OFFLOAD1 1OFFLOAD1");
  CHECK(move_labels(schedule.positions[0].communication[kIn]) == "1RELOAD0 0RELOAD0 1RELOAD1 0RELOAD1");
  struct Case {
    std::int64_t move, step, held;
    Span first_out, first_in;
  };
  for (const Case& one :
       {Case{0, 24, 2, {Time{1}, Time{1}}, {Time{6}, Time{6}}}, Case{1, 24, 2, {Time{1}, Time{2}}, {Time{6}, Time{7}}},
        Case{2, 26, 3, {Time{1}, Time{3}}, {Time{7}, Time{9}}},
        Case{4, 38, 3, {Time{1}, Time{5}}, {Time{9}, Time{13}}}}) {
    CAPTURE(one.move);
    const StepCosts costs = move_costs(shape, one.move);
    for (const Timeline& timeline : {static_order(schedule, costs), event_order(schedule, costs, LinkUse::Private),
                                     oracle_timeline(schedule, costs)}) {
      CHECK(timeline.makespan == Time{one.step});
      CHECK(timeline.workers[0].communication[kOut][0] == one.first_out);
      CHECK(timeline.workers[0].communication[kIn][0] == one.first_in);
      CHECK(validate(timeline, schedule, costs) == "");
    }
    const ChunkMemory chunk{.stash = {Bytes{1}, Bytes{1}}, .boundary = {Bytes{1}, Bytes{1}}};
    const MemoryModel memory{.chunks = std::vector<ChunkMemory>(4, chunk), .reserve = {}, .capacity = {}};
    const Timeline timeline = static_order(schedule, costs);
    CHECK(peaks(memory, schedule, costs, timeline).front().bytes.stash == Bytes{one.held});
    CHECK(peaks(memory, schedule, costs, timeline).front().in_flight == 4);
    CHECK(most_away(memory, schedule, 0) == Bytes{2});
    CHECK(peak(memory, schedule, 0).bytes.stash >= Bytes{one.held});
  }
}

TEST_CASE("what is read by one of the next two ops stays") {
  ScheduleShape shape = four_blocks(1);
  shape.offloaded = {true, true, true, true};
  const Schedule schedule = find_schedule("1f1b")->generate(shape);
  CHECK(validate(schedule) == "");
  CHECK(move_labels(schedule.positions[0].communication[kOut]) == "0OFFLOAD0 1OFFLOAD0 2OFFLOAD0");
}

TEST_CASE("with recomputation it is back before the forward is repeated") {
  ScheduleShape shape = four_blocks(1);
  shape.recompute = {true};
  const Schedule schedule = find_schedule("1f1b")->generate(shape);
  REQUIRE(validate(schedule) == "");
  const StepCosts costs = move_costs(shape, 4);
  const Timeline timeline = static_order(schedule, costs);
  CHECK(validate(timeline, schedule, costs) == "");
  for (std::size_t i = 0; i < schedule.positions[0].compute.size(); ++i)
    if (schedule.positions[0].compute[i] == Op{Kind::R, 1, 0})
      CHECK(timeline.workers[0].compute[i].start == timeline.workers[0].communication[kIn][0].end);
}

TEST_CASE("one entry is needed for each virtual stage") {
  Schedule schedule = find_schedule("1f1b")->generate(four_blocks(1));
  schedule.shape.offloaded.pop_back();
  CHECK(validate(schedule) == "offloaded: one entry is needed for each virtual stage");
}
