// Runs near the longest time that can be told: every engine is right to the nanosecond, or says that they overflow.
#include "sim/run_length.hpp"

#include <optional>
#include <random>

#include <doctest/doctest.h>

#include "sim/compiled_order.hpp"
#include "sim/event_order.hpp"
#include "sim/static_order.hpp"
#include "tests/support/random_costs.hpp"
#include "tests/support/random_links.hpp"
#include "tests/support/rounds.hpp"
#include "tests/support/worklist.hpp"

using namespace pipewright::tests;

namespace {

void scale(std::vector<Time>& times, std::int64_t factor) {
  for (Time& time : times)
    time = time * factor;
}

void scale(std::vector<Collective>& collectives, std::int64_t factor) {
  for (Collective& collective : collectives)
    collective.time = collective.time * factor;
}

void scale(StepCosts& costs, std::int64_t factor) {
  scale(costs.duration, factor), scale(costs.duration_last, factor);
  for (auto* messages : {&costs.messages, &costs.messages_last})
    for (Message& message : *messages)
      message.occupancy = message.occupancy * factor, message.latency = message.latency * factor;
  for (auto* ready : {&costs.ready_before_end, &costs.ready_before_end_last})
    for (std::vector<Time>& chunk : *ready)
      scale(chunk, factor);
  for (StepCosts::Slice& slice : costs.slices) {
    scale(slice.duration, factor);
    for (std::vector<Time>& chunk : slice.ready_before_end)
      scale(chunk, factor);
  }
  for (std::vector<Collective>& buckets : costs.collectives)
    scale(buckets, factor);
  for (std::vector<Collective>* each : std::initializer_list<std::vector<Collective>*>{
           &costs.gathers, &costs.other_gathers, &costs.moves, &costs.host_copies})
    scale(*each, factor);
  scale(costs.tied, factor);
  costs.norm.time = costs.norm.time * factor;
}

// None: it said that the time of a run overflows.
std::optional<Time> told(const auto& makespan) {
  try {
    return makespan();
  } catch (const OverflowError& error) {
    CHECK(std::string(error.what()).starts_with("the time of a run overflows"));
    return std::nullopt;
  }
}

struct Counts {
  int timed = 0, refused = 0;
  void add(const std::optional<Time>& time) { ++(time ? timed : refused); }
};

// `check(schedule, costs, small, run)`: `small` is what they take, and not nothing.
void for_random_runs(int runs, unsigned seed, const auto& check) {
  std::mt19937 random(seed);
  for (int run = 0; run < rounds(runs); ++run) {
    const Schedule schedule = random_schedule(random);
    StepCosts costs = random_costs(schedule.shape, random);
    if (run % 3 == 0 && schedule.shape.slices > 1) add_slices(costs, random);
    CAPTURE(schedule.name);
    if (const Time small = static_order_makespan(schedule, costs); small > Time{}) check(schedule, costs, small, run);
  }
}

}  // namespace

TEST_CASE("a run near the longest time is timed to the nanosecond, or said to overflow") {
  Counts counts;
  for_random_runs(600, 3, [&](const Schedule& schedule, const StepCosts& costs, Time, int) {
    const CompiledOrder order = CompiledOrder::of(schedule, costs);
    const Time small = static_order_makespan(schedule, costs);
    const std::int64_t longest = kLargest / small.value;
    for (const std::int64_t factor : {longest, longest / 3, longest / 10, longest / 1000}) {
      StepCosts large = costs;
      scale(large, factor);
      for (const std::optional<Time> time :
           {told([&] { return worklist(schedule, large).makespan; }),
            told([&] { return static_order(schedule, large).makespan; }), told([&] { return order.makespan(large); }),
            told([&] { return event_order(schedule, large).makespan; })}) {
        if (time) CHECK(*time == small * factor);
        counts.add(time);
      }
      // With all of it one after the other it is far below.
      if (factor == longest / 1000) CHECK(told([&] { return static_order_makespan(schedule, large); }));
    }
  });
  CHECK(counts.timed > rounds(1000));
  CHECK(counts.refused > rounds(1000));
}

// Every engine that such a run can have says that it overflows, or ends later than alone and before 2^62 ns.
TEST_CASE("slices, moves, gathers and contention near the longest time") {
  Counts counts;
  for_random_runs(300, 5, [&](const Schedule& schedule, const StepCosts& costs, Time small, int run) {
    for (const std::int64_t factor : {kLargest / small.value, kLargest / small.value / 50}) {
      StepCosts large = costs;
      scale(large, factor);
      const std::optional<Time> time = told([&] { return static_order_makespan(schedule, large); });
      if (time) CHECK(*time == small * factor);
      if (run % 2 == 0) {
        const auto rows = static_cast<std::size_t>(schedule.shape.chunks()) * kKinds;
        large.contention = {.computing = std::vector<double>(rows, 3),
                            .collectives = std::vector<double>(rows / kKinds, 2)};
      }
      const std::optional<Time> event = told([&] { return event_order(schedule, large).makespan; });
      if (event) CHECK(event->value >= (small * factor).value / 1000 * 999);  // rates are doubles
      if (event) CHECK(event->value <= kLargest);
      counts.add(time), counts.add(event);
    }
  });
  CHECK(counts.timed > rounds(200));
  CHECK(counts.refused > rounds(200));
}
