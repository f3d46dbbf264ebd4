// The two engines know nothing of one another: one relaxes a longest path, the other pops events. Where no transfers
// meet they must give every op and every transfer the same times.
#include <algorithm>

#include <doctest/doctest.h>

#include "sim/event_order.hpp"
#include "sim/schedules/expand.hpp"
#include "sim/schedules/table.hpp"
#include "sim/simulate.hpp"
#include "sim/static_order.hpp"
#include "tests/support/oracle_engine.hpp"
#include "tests/support/random_costs.hpp"
#include "tests/support/random_links.hpp"
#include "tests/support/rounds.hpp"
#include "tests/support/worklist.hpp"

using namespace pipewright::tests;

namespace {

struct Steps {
  Schedule schedule;
  StepCosts costs;
  std::mt19937 random;
  explicit Steps(unsigned seed) : random(seed) {
    schedule = random_schedule(random);
    if (seed % 2 == 0 && !schedule.shape.resharding && schedule.shape.updated == UpdatedParts::None &&
        gathering_refusal(schedule).empty())
      gather_weights(schedule, {.after_forward = seed % 3 != 0, .after_backward = seed % 5 != 0});
    // Short times make ties, a longest of 1 makes every time zero.
    const int longest = seed % 10 == 0 ? 1 : seed % 2 == 0 ? 4 : 30;
    costs = random_costs(schedule.shape, random, seed % 3 == 0 ? Wires::Skips : Wires::Chain, longest);
    // A ragged last micro-batch may show in its durations, its messages, both or neither.
    if (seed % 4 < 2) costs.duration_last = costs.duration;
    if (seed % 8 < 4) costs.messages_last = costs.messages;
  }
};

void check_same(const Timeline& a, const Timeline& b) {
  CHECK(a.makespan == b.makespan);
  REQUIRE(a.workers.size() == b.workers.size());
  for (std::size_t worker = 0; worker < a.workers.size(); ++worker) {
    CAPTURE(worker);
    CHECK((a.workers[worker].compute == b.workers[worker].compute));
    CHECK((a.workers[worker].communication == b.workers[worker].communication));
  }
  CHECK((a.transfers == b.transfers));
}

}  // namespace

TEST_CASE("both engines and the oracle agree op by op when every transfer has its route alone") {
  int listed = 0;
  for (unsigned seed = 1; seed <= rounds(600U); ++seed) {
    const Steps steps(seed);
    CAPTURE(seed);
    CAPTURE(steps.schedule.name);
    const Timeline timeline = event_order(steps.schedule, steps.costs, LinkUse::Private);
    check_same(timeline, static_order(steps.schedule, steps.costs));
    check_same(timeline, worklist(steps.schedule, steps.costs));
    if (seed % 3 == 0 || more_rounds() > 1) check_same(timeline, oracle_timeline(steps.schedule, steps.costs));
    listed += steps.schedule.shape.chunk_order == ChunkOrder::Listed ? 1 : 0;
  }
  CHECK(listed > rounds(8));
}

// Gradients that travel beside the backward of their own round, and an update that waits for them behind it.
TEST_CASE("both engines and the oracle agree where replicas synchronise at once") {
  int early = 0;
  for (unsigned seed = 1; seed <= full_rounds(200U); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](unsigned limit) { return static_cast<int>(random() % limit); };
    const ScheduleShape shape{.stages = 2,
                              .micro_batches = 4 + below(9),
                              .replicas = {2 + below(3), 1 + below(3)},
                              .buckets = {1 + below(3), 1 + below(3)},
                              .blocking_sync = true};
    const Schedule schedule = find_schedule("pipedream")->generate(shape);
    REQUIRE(validate(schedule) == "");
    const StepCosts costs = random_costs(shape, random, Wires::Chain, 30);
    const Timeline timeline = event_order(schedule, costs, LinkUse::Private);
    check_same(timeline, static_order(schedule, costs));
    check_same(timeline, oracle_timeline(schedule, costs));
    CHECK(validate(timeline, schedule, costs) == "");
    // The first all-reduce of worker 0 against its first backward.
    const auto& ops = schedule.positions[0].compute;
    const auto backward = std::find_if(ops.begin(), ops.end(), [](const Op& op) { return op.kind == Kind::BW; });
    const Span span = timeline.workers[0].compute[static_cast<std::size_t>(backward - ops.begin())];
    early += timeline.workers[0].communication[kReductions].front().start < span.end ? 1 : 0;
  }
  CHECK(early > 20);
}

TEST_CASE("both engines, the oracle and the compiled order agree where slices of a sequence take unequal times") {
  int unequal = 0;
  for (unsigned seed = 1; seed <= rounds(200U); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](unsigned limit) { return static_cast<int>(random() % limit); };
    const int slices = 2 + below(4), stages = 1 + below(4);
    ScheduleShape shape{
        .stages = stages, .micro_batches = slices * (1 + below(5)), .slices = slices, .data_parallel = 1 + below(2)};
    for (int k = 0; k < stages; ++k)
      shape.recompute.push_back(below(2) == 0), shape.buckets.push_back(1 + below(3));
    const Schedule schedule = find_schedule("seq1f1b")->generate(shape);
    REQUIRE(validate(schedule) == "");
    StepCosts costs = random_costs(shape, random, seed % 3 == 0 ? Wires::Skips : Wires::Chain, 30);
    const Timeline even = static_order(schedule, costs);
    add_slices(costs, random, 30);
    const Timeline timeline = event_order(schedule, costs, LinkUse::Private);
    check_same(timeline, static_order(schedule, costs));
    check_same(timeline, oracle_timeline(schedule, costs));
    CHECK(validate(timeline, schedule, costs) == "");
    CHECK(static_order_makespan(schedule, costs) == timeline.makespan);
    // Each op takes what the table of its slice says.
    for (PositionId w = 0; w < std::ssize(schedule.positions); ++w)
      for (std::size_t i = 0; i < schedule.positions[w].compute.size(); ++i) {
        const Op& op = schedule.positions[w].compute[i];
        const auto row = static_cast<std::size_t>(op.virtual_stage) * kKinds + static_cast<std::size_t>(op.kind);
        const auto& table = op.kind == Kind::Update
                                ? costs.duration
                                : costs.slices[op.micro_batch % static_cast<unsigned>(slices)].duration;
        const Span span = timeline.workers[w].compute[i];
        CHECK(span.end - span.start == table[row]);
      }
    unequal += timeline.makespan != even.makespan ? 1 : 0;
  }
  CHECK(unequal > rounds(150));
}

TEST_CASE("both engines agree op by op over links on which nothing meets") {
  for (unsigned seed = 1; seed <= rounds(600U); ++seed) {
    Steps steps(seed);
    CAPTURE(seed);
    CAPTURE(steps.schedule.name);
    add_links(steps.costs, steps.random, LinkLayout::Private);
    const Timeline expected = static_order(steps.schedule, steps.costs);
    check_same(event_order(steps.schedule, steps.costs, LinkUse::Shared), expected);
    steps.costs.sharing = Sharing::Fifo;
    check_same(event_order(steps.schedule, steps.costs, LinkUse::Shared), expected);
  }
}

TEST_CASE("links used privately give the static order's times however much their transfers meet") {
  for (unsigned seed = 1; seed <= rounds(200U); ++seed) {
    Steps steps(seed);
    CAPTURE(seed);
    add_links(steps.costs, steps.random, LinkLayout::Shared);
    check_same(event_order(steps.schedule, steps.costs, LinkUse::Private), static_order(steps.schedule, steps.costs));
  }
}

TEST_CASE(
    "over shared links every rule is kept, everything ends, and neither a second run nor routes named backwards "
    "change anything") {
  int met = 0;
  for (const Sharing sharing : {Sharing::MaxMin, Sharing::Fifo})
    for (unsigned seed = 1; seed <= rounds(400U); ++seed) {
      Steps steps(seed);
      CAPTURE(seed);
      CAPTURE(steps.schedule.name);
      add_links(steps.costs, steps.random, LinkLayout::Shared);
      steps.costs.sharing = sharing;
      const Timeline timeline = event_order(steps.schedule, steps.costs, LinkUse::Shared);
      CHECK(validate(timeline, steps.schedule, steps.costs) == "");
      check_same(timeline, event_order(steps.schedule, steps.costs, LinkUse::Shared));
      for (Route& route : steps.costs.routes)
        std::swap(route.links.front(), route.links.back());
      check_same(timeline, event_order(steps.schedule, steps.costs, LinkUse::Shared));
      met += timeline.makespan != static_order_makespan(steps.schedule, steps.costs) ? 1 : 0;
    }
  CHECK(met > rounds(100));  // else the links were hardly shared
}
