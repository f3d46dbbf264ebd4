// Collectives and ops that slow one another: by hand, and against what rates add up to on random steps.
#include "sim/contention.hpp"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "sim/event_order.hpp"
#include "sim/schedules/expand.hpp"
#include "sim/schedules/table.hpp"
#include "sim/simulate.hpp"
#include "sim/static_order.hpp"
#include "tests/support/random_costs.hpp"
#include "tests/support/random_links.hpp"
#include "tests/support/rounds.hpp"

using namespace pipewright::tests;

namespace {

constexpr Time kMs{1'000'000};

StepCosts::Contention by(const ScheduleShape& shape, double computing, double collective) {
  const auto chunks = at(shape.chunks());
  return {std::vector<double>(chunks * kKinds, computing), std::vector<double>(chunks, collective)};
}

// Two units on one device, in two copies: the gather of the second runs beside the forward of the first.
struct Gathering {
  Schedule schedule;
  StepCosts costs;
  Gathering(Time forward, Time gather) {
    const ScheduleShape shape{.stages = 1, .virtual_stages = 2, .micro_batches = 1, .data_parallel = 2};
    schedule = find_schedule("interleaved_1f1b")->generate(shape);
    gather_weights(schedule, {});
    costs = plain_costs(schedule.shape, {forward, forward}, {forward, forward}, Time{});
    costs.gathers.assign(2, Collective{{1}, gather, {}});
    costs.collectives.assign(2, {Collective{{1}, Time{}, {}}});
    costs.ready_before_end.assign(2, {Time{}});
  }
  const LaneTimes& run(double computing, double collective) {
    costs.contention = by(schedule.shape, computing, collective);
    timeline = simulate(schedule, costs);
    CHECK(validate(timeline, schedule, costs) == "");
    return timeline.workers[0];
  }
  Timeline timeline;
};

// Nanoseconds of a span that lie in any of some others.
std::int64_t inside(Span span, std::vector<Span> others) {
  std::sort(others.begin(), others.end(), [](Span a, Span b) { return a.start < b.start; });
  Time from = span.start;
  std::int64_t sum = 0;
  for (const Span other : others) {
    const Time begin = std::max(from, other.start), end = std::min(span.end, other.end);
    if (end > begin) sum += (end - begin).value, from = end;
  }
  return sum;
}

}  // namespace

TEST_CASE("a product of 10 ms beside a gather of 4 ms that holds 20 of 132 multiprocessors") {
  Gathering step(kMs * 10, kMs * 4);
  const LaneTimes& times = step.run(132.0 / 112, 1);
  CHECK(step.timeline.engine_reason == "collectives contend with computing");
  // The first gather runs alone; 4 * 112/132 = 3.394 ms of the product are done when the second ends.
  CHECK(times.communication[kGathers][0] == Span{{}, kMs * 4});
  CHECK(times.communication[kGathers][1] == Span{kMs * 4, kMs * 8});
  CHECK(times.compute[0] == Span{kMs * 4, Time{14'606'061}});
}

TEST_CASE("work that memory limits, and a gather that is slowed itself") {
  Gathering step(kMs * 10, kMs * 4);
  CHECK(step.run(1.15, 1).compute[0] == Span{kMs * 4, Time{14'521'740}});
  const LaneTimes& times = step.run(132.0 / 112, 1.1);
  CHECK(times.communication[kGathers][1] == Span{kMs * 4, Time{8'400'000}});
  CHECK(times.compute[0] == Span{kMs * 4, Time{14'666'667}});
  // A gather as long as the product and longer is slowed while that runs only: 10 ms, of which 10 / 1.25 = 8 are done.
  Gathering longer(kMs * 10, kMs * 12);
  const LaneTimes& exposed = longer.run(1, 1.25);
  CHECK(exposed.compute[0] == Span{kMs * 12, kMs * 22});
  CHECK(exposed.communication[kGathers][1] == Span{kMs * 12, kMs * 26});
}

TEST_CASE("the static order ignores contention, and says so") {
  Gathering step(kMs * 10, kMs * 4);
  step.run(1.5, 1);
  const Timeline ignored = simulate(step.schedule, step.costs, Engine::StaticOrder);
  CHECK(ignored.engine_reason == "asked for, although collectives contend with computing: that is ignored");
  CHECK(validate(ignored, step.schedule, step.costs) == "");
  CHECK(ignored.makespan < step.timeline.makespan);
}

TEST_CASE("gradients are complete when so much of a slowed backward is done") {
  // Two buckets: the first is there 6 ms before the end of a backward of 10 ms, and reduced in 3 ms beside it.
  const ScheduleShape shape{.stages = 1, .micro_batches = 1, .data_parallel = 2, .buckets = {2}};
  const Schedule schedule = find_schedule("gpipe")->generate(shape);
  StepCosts costs = plain_costs(shape, {kMs * 5}, {kMs * 10}, Time{});
  costs.collectives = {{Collective{{1}, kMs * 3, {}}, Collective{{1}, kMs, {}}}};
  costs.ready_before_end = {{kMs * 6, Time{}}};
  costs.contention = by(shape, 1.5, 1);
  const Timeline timeline = simulate(schedule, costs);
  CHECK(validate(timeline, schedule, costs) == "");
  const LaneTimes& times = timeline.workers[1];
  CHECK(times.communication[kReductions][0] == Span{kMs * 9, kMs * 12});
  CHECK(times.compute[1] == Span{kMs * 5, kMs * 16});  // 4, then 2 in 3, then 4
  CHECK(times.communication[kReductions][1] == Span{kMs * 16, kMs * 17});
}

TEST_CASE("random steps: nothing taken changes nothing; what is taken adds up, op by op and collective by collective") {
  int slowed = 0;
  for (unsigned seed = 1; seed <= rounds(400U); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Schedule schedule = random_schedule(random);
    if (seed % 2 == 0 && !schedule.shape.resharding && schedule.shape.updated == UpdatedParts::None &&
        gathering_refusal(schedule).empty())
      gather_weights(schedule, {.after_forward = seed % 3 != 0});
    StepCosts costs = random_costs(schedule.shape, random, Wires::Chain, seed % 5 == 0 ? 4 : 30);
    const Timeline alone = event_order(schedule, costs, LinkUse::Private);
    costs.contention = by(schedule.shape, 1, 1);
    const Timeline untouched = event_order(schedule, costs, LinkUse::Private);
    CHECK(untouched.makespan == alone.makespan);
    CHECK((untouched.transfers == alone.transfers));
    for (std::size_t w = 0; w < alone.workers.size(); ++w)
      CHECK((untouched.workers[w] == alone.workers[w]));

    for (double& slower : costs.contention->computing)
      slower += static_cast<double>(random() % 100) / 100;
    for (double& slower : costs.contention->collectives)
      slower += static_cast<double>(random() % 100) / 100;
    const Timeline timeline = event_order(schedule, costs, LinkUse::Private);
    CHECK(validate(timeline, schedule, costs) == "");
    CHECK(timeline.makespan >= alone.makespan);
    slowed += timeline.makespan > alone.makespan ? 1 : 0;
    for (std::size_t w = 0; w < timeline.workers.size(); ++w)
      for (const StreamId s : {kReductions, kGathers}) {
        const auto& ops = schedule.lane_of(WorkerId{w}).communication[s];
        for (std::size_t i = 0; i < ops.size(); ++i) {
          const Span span = timeline.workers[w].communication[s][i];
          std::vector<Span> computing;
          for (const LaneTimes& member : timeline.workers)
            if (std::count(member.communication[s].begin(), member.communication[s].end(), span) > 0)
              computing.insert(computing.end(), member.compute.begin(), member.compute.end());
          // Workers that are no members may have a collective of the same span: then more seems to compute.
          const auto beside = static_cast<double>(inside(span, computing));
          const double done = static_cast<double>((span.end - span.start).value) - beside +
                              beside / costs.contention->collectives[ops[i].virtual_stage];
          const auto time = static_cast<double>(
              costs.collective(ops[i], static_cast<CopyId>(w / schedule.positions.size())).time.value);
          CHECK(done < time + 1);
          if (schedule.positions.size() == 1) CHECK(done >= time - 0.01);
        }
      }
  }
  CHECK(slowed > rounds(100));
}

TEST_CASE("random steps over shared links stay valid while collectives are slowed") {
  for (unsigned seed = 1; seed <= rounds(200U); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Schedule schedule = random_schedule(random);
    if (!schedule.shape.resharding && schedule.shape.updated == UpdatedParts::None &&
        gathering_refusal(schedule).empty())
      gather_weights(schedule, {});
    StepCosts costs = random_costs(schedule.shape, random, Wires::Chain, 30);
    add_links(costs, random, LinkLayout::Shared);
    if (seed % 3 == 0) costs.sharing = Sharing::Fifo;
    const Timeline alone = event_order(schedule, costs, LinkUse::Shared);
    costs.contention = by(schedule.shape, 1, 1);
    // Of two that ask for a link at the same instant it is not said who has it first.
    if (costs.sharing == Sharing::MaxMin)
      CHECK((event_order(schedule, costs, LinkUse::Shared).workers == alone.workers));
    costs.contention = by(schedule.shape, 1.3, 1.2);
    const Timeline timeline = event_order(schedule, costs, LinkUse::Shared);
    CHECK(validate(timeline, schedule, costs) == "");
  }
}
