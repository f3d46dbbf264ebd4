// The all-reduce of the gradients' norm: when it begins, and that all updates wait for it.
#include <algorithm>

#include <doctest/doctest.h>

#include "sim/compiled_order.hpp"
#include "sim/static_order.hpp"
#include "tests/sim/summed.hpp"
#include "tests/support/agreed.hpp"

using namespace pipewright::tests;

namespace {

constexpr Span kUpdate{Time{32}, Time{33}};

}  // namespace

// Stage 1: F0 3-6, B0 6-12, F1 12-15, B1 15-21; stage 0: B0 12-18, B1 21-27. Then the norm of 5, then updates of 1.
TEST_CASE("Updates of stage 1 wait for the last backward of stage 0, and for the norm") {
  const auto [schedule, costs] = summed("1f1b", {.stages = 2, .micro_batches = 2, .norm = true});
  CHECK(label(schedule.positions[1].communication[kNorm].front()) == "1NR0");
  const Timeline timeline = agreed_timeline(schedule, costs);
  for (const LaneTimes& worker : timeline.workers) {
    CHECK(worker.communication[kNorm] == std::vector<Span>{{Time{27}, Time{32}}});
    CHECK(worker.compute.back() == kUpdate);
  }
  CHECK(timeline.makespan == Time{33});
  CHECK(static_order_makespan(schedule, costs) == Time{33});
  const auto [without, same] = summed("1f1b", {.stages = 2, .micro_batches = 2});
  CHECK(agreed_timeline(without, same).workers[1].compute.back() == Span{Time{21}, Time{22}});
}

// In both copies the reductions end at 29 on stage 0.
TEST_CASE("With copies the norm is behind the all-reduces of all, one for all copies") {
  const auto [schedule, costs] = summed("1f1b", {.stages = 2, .micro_batches = 2, .data_parallel = 2, .norm = true});
  const Timeline timeline = agreed_timeline(schedule, costs);
  for (const LaneTimes& worker : timeline.workers)
    CHECK(worker.communication[kNorm] == std::vector<Span>{{Time{29}, Time{34}}});
  CHECK(timeline.makespan == Time{35});
}

// A table of the first and the last chunk is summed last: 29 to 34. One of the chunks behind is summed while chunk 0 still has a
// backward to run, so that the last reduction comes behind it.
TEST_CASE("Behind the sums of tied tables, and behind reductions that end later") {
  const auto [last, costs] =
      summed("1f1b", {.stages = 2, .micro_batches = 2, .data_parallel = 2, .tied = {{0, 1}}, .norm = true});
  CHECK(agreed_timeline(last, costs).workers[1].communication[kNorm] == std::vector<Span>{{Time{34}, Time{39}}});
  const auto [early, prices] = summed(
      "interleaved_1f1b",
      {.stages = 2, .virtual_stages = 2, .micro_batches = 2, .data_parallel = 2, .tied = {{2, 3}}, .norm = true});
  const Timeline timeline = agreed_timeline(early, prices);
  const LaneTimes& first = timeline.workers[0];
  const Time reduced = first.communication[kReductions].back().end;
  REQUIRE(first.communication[kTables].back().end < reduced);
  CHECK(first.communication[kNorm].front().start == reduced);
  CHECK(timeline.makespan == reduced + Time{5 + 2});  // updates of two chunks
}

TEST_CASE("Without a flush nobody waits for a norm; an order without one is another order") {
  const auto [asynchronous, costs] = summed("pipedream", {.stages = 2, .micro_batches = 4, .norm = true});
  for (const Lane& lane : asynchronous.positions)
    CHECK(lane.communication[kNorm].empty());
  const auto [schedule, prices] = summed("gpipe", {.stages = 2, .micro_batches = 4, .norm = true});
  CHECK(CompiledOrder::of(schedule, prices).makespan(prices) == Time{5 * 3 + 5 * 6 + 5 + 1});
  Makespans makespan(*find_schedule("gpipe"));
  CHECK(makespan(summed("gpipe", {.stages = 2, .micro_batches = 4}).costs) == Time{5 * 3 + 5 * 6 + 1});
  CHECK(makespan(prices) == Time{5 * 3 + 5 * 6 + 5 + 1});
}

TEST_CASE("Lists without the norm, or with a pass behind the update that waits for it, are refused") {
  const auto [good, costs] = summed("1f1b", {.stages = 2, .micro_batches = 2, .norm = true});
  Schedule missing = good, unasked = good;
  missing.positions[1].communication[kNorm].clear();
  CHECK(validate(missing) == "worker 1 (stage 1): its norm's stream is not one all-reduce of the norm");
  unasked.shape.norm = false;
  CHECK(validate(unasked) == "worker 0 (stage 0): its norm's stream is not empty");
  Schedule early =
      summed("interleaved_1f1b", {.stages = 2, .virtual_stages = 2, .micro_batches = 2, .norm = true}).schedule;
  std::vector<Op>& ops = early.positions[1].compute;  // ... 1B1 3U0 1U0
  std::swap(ops[ops.size() - 3], ops[ops.size() - 2]);
  CHECK(validate(early) == "worker 1 (stage 1): 1B1 stands behind 3U0, which waits for the norm of all gradients");
}

TEST_CASE("A timeline whose norm is summed too early, or whose update does not wait for it, is refused") {
  const auto [schedule, costs] = summed("1f1b", {.stages = 2, .micro_batches = 2, .data_parallel = 2, .norm = true});
  const Timeline good = agreed_timeline(schedule, costs);
  const auto fault = [&](const auto& change) {
    Timeline timeline = good;
    for (LaneTimes& worker : timeline.workers)
      change(worker.communication[kNorm].front());
    return validate(timeline, schedule, costs);
  };
  CHECK(fault([](Span& norm) { norm.start -= Time{1}; }).find("starts before all gradients are there") !=
        std::string::npos);
  CHECK(fault([](Span& norm) { norm.end += Time{1}; }).find("before what it needs has arrived") != std::string::npos);
  CHECK(fault([](Span& norm) { norm.end -= Time{1}; }).find("is faster than priced") != std::string::npos);
}
