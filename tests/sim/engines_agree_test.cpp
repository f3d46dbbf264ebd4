// The two engines know nothing of one another: one relaxes a longest path, the other pops events. Where no transfers
// meet they must give every op and every transfer the same times.
#include <algorithm>

#include <doctest/doctest.h>

#include "sim/event_order.hpp"
#include "sim/schedules/gather_weights.hpp"
#include "sim/schedules/table.hpp"
#include "sim/simulate.hpp"
#include "sim/static_order.hpp"
#include "tests/support/oracle_engine.hpp"
#include "tests/support/random_costs.hpp"
#include "tests/support/random_links.hpp"

using namespace pipewright::tests;

namespace {

struct Steps {
  Schedule schedule;
  StepCosts costs;
  std::mt19937 random;
  explicit Steps(unsigned seed) : random(seed) {
    schedule = random_schedule(random);
    if (seed % 2 == 0 && !schedule.shape.resharding && gathering_refusal(schedule).empty())
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
  for (unsigned seed = 1; seed <= 600; ++seed) {
    const Steps steps(seed);
    CAPTURE(seed);
    CAPTURE(steps.schedule.name);
    const Timeline timeline = event_order(steps.schedule, steps.costs, LinkUse::Private);
    check_same(timeline, static_order(steps.schedule, steps.costs));
    if (seed % 3 == 0) check_same(timeline, oracle_timeline(steps.schedule, steps.costs));
  }
}

// Gradients that travel beside the backward of their own round, and an update that waits for them behind it.
TEST_CASE("both engines and the oracle agree where replicas synchronise at once") {
  int early = 0;
  for (unsigned seed = 1; seed <= 200; ++seed) {
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

TEST_CASE("both engines agree op by op over links on which nothing meets") {
  for (unsigned seed = 1; seed <= 600; ++seed) {
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
  for (unsigned seed = 1; seed <= 200; ++seed) {
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
    for (unsigned seed = 1; seed <= 400; ++seed) {
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
  CHECK(met > 100);  // else the links were hardly shared
}
