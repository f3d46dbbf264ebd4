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

using namespace pipewright::tests;

namespace {

void scale(std::vector<Time>& times, std::int64_t factor) {
  for (Time& time : times)
    time = time * factor;
}

void scale(StepCosts& costs, std::int64_t factor) {
  scale(costs.duration, factor), scale(costs.duration_last, factor);
  for (auto* messages : {&costs.messages, &costs.messages_last})
    for (Message& message : *messages)
      message.occupancy = message.occupancy * factor, message.latency = message.latency * factor;
  for (auto* ready : {&costs.ready_before_end, &costs.ready_before_end_last})
    for (std::vector<Time>& chunk : *ready)
      scale(chunk, factor);
  for (std::vector<Collective>& buckets : costs.collectives)
    for (Collective& reduced : buckets)
      reduced.time = reduced.time * factor;
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

}  // namespace

TEST_CASE("a run near the longest time is timed to the nanosecond, or said to overflow") {
  std::mt19937 random(3);
  int timed = 0, refused = 0;
  for (int run = 0; run < rounds(600); ++run) {
    const Schedule schedule = random_schedule(random);
    StepCosts costs = random_costs(schedule.shape, random);
    costs.gathers.clear(), costs.gathers_of_few.clear(), costs.moves.clear();
    if (!schedule.flush || schedule.shape.resharding || schedule.shape.reduce_each) continue;
    const Time small = static_order_makespan(schedule, costs);
    if (small == Time{}) continue;
    const std::optional<CompiledOrder> order = CompiledOrder::of(schedule, costs.edges);
    if (!order) continue;
    CAPTURE(schedule.name);
    const std::int64_t longest = kLargest / small.value;
    for (const std::int64_t factor : {longest, longest / 3, longest / 10, longest / 1000}) {
      StepCosts large = costs;
      scale(large, factor);
      for (const std::optional<Time> time :
           {told([&] { return static_order_makespan(schedule, large); }),
            told([&] { return static_order(schedule, large).makespan; }), told([&] { return order->makespan(large); }),
            told([&] { return event_order(schedule, large).makespan; })}) {
        if (time) CHECK(*time == small * factor);
        ++(time ? timed : refused);
      }
      // With all of it one after the other it is far below.
      if (factor == longest / 1000) CHECK(told([&] { return static_order_makespan(schedule, large); }));
    }
  }
  CHECK(timed > rounds(1000));
  CHECK(refused > rounds(1000));
}

// Every engine that such a run can have says that it overflows, or ends later than alone and before 2^62 ns.
TEST_CASE("slices, moves, gathers and contention near the longest time") {
  std::mt19937 random(5);
  int timed = 0, refused = 0;
  for (int run = 0; run < rounds(300); ++run) {
    const Schedule schedule = random_schedule(random);
    StepCosts costs = random_costs(schedule.shape, random);
    if (run % 3 == 0 && schedule.shape.slices > 1) add_slices(costs, random);
    const Time small = static_order_makespan(schedule, costs);
    if (small == Time{}) continue;
    CAPTURE(schedule.name);
    for (const std::int64_t factor : {kLargest / small.value, kLargest / small.value / 50}) {
      StepCosts large = costs;
      scale(large, factor);
      for (StepCosts::Slice& slice : large.slices)
        scale(slice.duration, factor);
      for (auto* each : {&large.gathers, &large.gathers_of_few, &large.moves})
        for (Collective& one : *each)
          one.time = one.time * factor;
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
      for (const auto& each : {time, event})
        ++(each ? timed : refused);
    }
  }
  CHECK(timed > rounds(200));
  CHECK(refused > rounds(200));
}
