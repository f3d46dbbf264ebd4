// The event queue where only it applies: transfers and all-reduces that share links, worked out by hand.
#include "sim/event_order.hpp"

#include <doctest/doctest.h>

#include "sim/simulate.hpp"
#include "sim/static_order.hpp"
#include "tests/support/op.hpp"
#include "tests/support/ring_steps.hpp"

using namespace pipewright::tests;

namespace {

constexpr Bandwidth kBytePerNanosecond{1e9};

std::vector<Time> durations(int chunks, Time forward, Time backward) {
  std::vector<Time> duration(static_cast<std::size_t>(chunks) * kKinds);
  for (std::size_t v = 0; v < static_cast<std::size_t>(chunks); ++v) {
    duration[v * kKinds + static_cast<std::size_t>(Kind::F)] = forward;
    duration[v * kKinds + static_cast<std::size_t>(Kind::BW)] = backward;
  }
  return duration;
}

// Two copies of a pipeline of two stages, one micro-batch. Messages of 100 bytes, every one over link 0 alone.
struct TwoCopies {
  Schedule schedule;
  StepCosts costs;
  TwoCopies() {
    schedule.shape = {.stages = 2, .micro_batches = 1, .data_parallel = 2};
    for (int stage : {0, 1})
      schedule.positions.push_back({.compute = {op(Kind::F, stage, 0), op(Kind::BW, stage, 0)}});
    costs.shape = schedule.shape;
    costs.duration = costs.duration_last = durations(2, {10}, {20});
    costs.edges = {{0, 1}};
    costs.first_message = {0, 2};
    costs.channels = 4;
    costs.links = {{"the wire", kBytePerNanosecond}};
    costs.routes = {{.links = {0}, .bandwidth = kBytePerNanosecond}};
    for (int channel = 0; channel < 4; ++channel)
      costs.messages.push_back({.occupancy = {100}, .latency = {3}, .bytes = {100}, .channel = channel, .route = 0});
    costs.messages_last = costs.messages;
  }
};

// n workers, one stage each a copy, one micro-batch, one bucket of `bytes` by a ring in which each hop has its own
// link of 1 byte per ns, `latency` a hop.
struct Ring {
  Schedule schedule;
  StepCosts costs;
  Ring(int n, std::int64_t bytes, Time latency) {
    schedule.shape = {.stages = 1, .micro_batches = 1, .data_parallel = n};
    schedule.positions = {{.compute = {op(Kind::F, 0, 0), op(Kind::BW, 0, 0), op(Kind::Update, 0, 0)},
                           .communication = {{{op(Kind::AllReduce, 0, 0)}}}}};
    costs.shape = schedule.shape;
    costs.duration = costs.duration_last = durations(1, {10}, {20});
    costs.ready_before_end = {{{0}}};
    CollectivePhase phase{.bytes = 2.0 * (n - 1) / n * static_cast<double>(bytes),
                          .rate = kBytePerNanosecond,
                          .latency = {2 * (n - 1) * latency.value}};
    for (int hop = 0; hop < n; ++hop) {
      costs.links.push_back({"hop", kBytePerNanosecond});
      phase.links.emplace_back(hop, 1.0);
      costs.routes.push_back({.links = {hop}, .bandwidth = kBytePerNanosecond, .latency = latency});
    }
    phase.time = transfer_time(phase.bytes, phase.rate) + phase.latency;
    costs.collectives = {{{.bytes = {bytes}, .time = phase.time, .phases = {phase}}}};
  }
  Time by_steps() const {
    return ring_by_steps(costs.routes, costs.links, static_cast<double>(costs.collectives[0][0].bytes.value));
  }
  Span all_reduce(LinkUse use) const {
    const Timeline timeline = event_order(schedule, costs, use);
    for (const LaneTimes& worker : timeline.workers)
      CHECK(worker.communication[kReductions] == timeline.workers[0].communication[kReductions]);
    return timeline.workers[0].communication[kReductions][0];
  }
};

}  // namespace

TEST_CASE("two copies that send at once share the wire and take twice as long") {
  const TwoCopies two;
  const Timeline timeline = event_order(two.schedule, two.costs);
  // F 0-10. Both activations leave at half rate: 10-210, arrive 213. F 213-223, BW 223-243. Gradients 243-443, 446.
  CHECK(timeline.workers[1].compute == std::vector<Span>{{{213}, {223}}, {{223}, {243}}});
  CHECK(timeline.workers[3] == timeline.workers[1]);
  CHECK(timeline.workers[0].compute[1] == Span{{446}, {466}});
  CHECK(timeline.makespan == Time{466});
  CHECK(timeline.engine == EngineRan::EventQueue);
  CHECK(validate(timeline, two.schedule, two.costs) == "");
  CHECK(first_shared_link(static_order(two.schedule, two.costs), two.schedule, two.costs) == 0);
}

TEST_CASE(
    "messages that reach a quarter of the wire alone do not slow one another, and a stream of them is not a faster") {
  TwoCopies two;
  for (Message& message : two.costs.messages)
    message.occupancy = {400};
  two.costs.messages_last = two.costs.messages;
  const Timeline timeline = event_order(two.schedule, two.costs);
  // F 0-10. Both activations 10-410, arrive 413. F 413-423, BW 423-443. Gradients 443-843, 846.
  CHECK(timeline.workers[1].compute == std::vector<Span>{{{413}, {423}}, {{423}, {443}}});
  CHECK(timeline.workers[3] == timeline.workers[1]);
  CHECK(timeline.workers[0].compute[1] == Span{{846}, {866}});
  CHECK(validate(timeline, two.schedule, two.costs) == "");
}

TEST_CASE("fifo: the copy whose message is posted first sends first, the other one afterwards") {
  TwoCopies two;
  two.costs.sharing = Sharing::Fifo;
  const Timeline timeline = event_order(two.schedule, two.costs);
  // Activations 10-110 and 110-210: F of copy 0 at 113, BW 123-143; of copy 1 at 213, BW 223-243.
  // Gradients: copy 0 waits for the wire until 210: 210-310; copy 1 243, waits: 310-410.
  CHECK(timeline.workers[1].compute[0] == Span{{113}, {123}});
  CHECK(timeline.workers[3].compute[0] == Span{{213}, {223}});
  REQUIRE(timeline.transfers.size() == 4);
  CHECK(timeline.transfers[1].posted == Time{143});
  CHECK(timeline.transfers[1].start == Time{210});
  CHECK(timeline.transfers[1].sent == Time{310});
  CHECK(timeline.transfers[3].start == Time{310});
  CHECK(timeline.workers[2].compute[1] == Span{{413}, {433}});
  CHECK(timeline.makespan == Time{433});
  CHECK(validate(timeline, two.schedule, two.costs) == "");
}

TEST_CASE("half duplex: an activation and a gradient that meet share the one capacity of the cable") {
  // Two stages, two micro-batches, F 10, BW 20, 30 bytes over one half-duplex link (1 byte per ns), no latency.
  Schedule schedule;
  schedule.shape = {.stages = 2, .micro_batches = 2};
  schedule.positions = {{.compute = {op(Kind::F, 0, 0), op(Kind::F, 0, 1), op(Kind::BW, 0, 0), op(Kind::BW, 0, 1)}},
                        {.compute = {op(Kind::F, 1, 0), op(Kind::BW, 1, 0), op(Kind::F, 1, 1), op(Kind::BW, 1, 1)}}};
  StepCosts costs;
  costs.shape = schedule.shape;
  costs.duration = costs.duration_last = durations(2, {10}, {20});
  costs.edges = {{0, 1}};
  costs.first_message = {0, 1};
  costs.channels = 2;
  costs.links = {{"cable", kBytePerNanosecond}};
  costs.routes = {{.links = {0}, .bandwidth = kBytePerNanosecond}};
  costs.messages = {{.occupancy = {30}, .bytes = {30}, .channel = 0, .route = 0},
                    {.occupancy = {30}, .bytes = {30}, .channel = 1, .route = 0}};
  // The second activation is larger: 60 bytes, 40-100 alone.
  costs.messages_last = costs.messages;
  costs.messages_last[0].bytes = {60};
  costs.messages_last[0].occupancy = {60};
  const Timeline timeline = event_order(schedule, costs);
  // Activation 0: 10-40; F 40-50, BW 50-70, its gradient (30 bytes) from 70. Activation 1 (posted at 20, the channel is
  // free at 40) has moved 30 of 60 bytes by 70; both have 30 left and run at half rate: 70-130.
  // Stage 0: BW 130-150. Stage 1: F1 130-140, BW1 140-160, gradient 160-190, BW1 on stage 0 190-210.
  CHECK(timeline.workers[1].compute == std::vector<Span>{{{40}, {50}}, {{50}, {70}}, {{130}, {140}}, {{140}, {160}}});
  CHECK(timeline.workers[0].compute[2] == Span{{130}, {150}});
  CHECK(timeline.workers[0].compute[3] == Span{{190}, {210}});
  CHECK(validate(timeline, schedule, costs) == "");

  // Full duplex: a link per direction, nothing meets. Gradient 0 70-100, activation 1 40-100.
  costs.links.push_back({"cable, back", kBytePerNanosecond});
  costs.routes.push_back({.links = {1}, .bandwidth = kBytePerNanosecond});
  costs.messages[1].route = costs.messages_last[1].route = 1;
  CHECK(event_order(schedule, costs).workers[0].compute[2] == Span{{100}, {120}});
  CHECK(event_order(schedule, costs).transfers == static_order(schedule, costs).transfers);
}

TEST_CASE("an activation and an all-reduce contend for one NIC") {
  // Two copies of two stages, two micro-batches in GPipe order; stage 1 all-reduces 80 bytes in one phase over the NIC
  // (weight 1) while its gradient messages are on the NIC, too. F 10, BW 20; every message 40 bytes.
  // Only copy 0's messages pass the NIC; copy 1's have no route and take their 40 ns alone.
  Schedule schedule;
  schedule.shape = {.stages = 2, .micro_batches = 1, .data_parallel = 2};
  schedule.positions = {
      {.compute = {op(Kind::F, 0, 0), op(Kind::BW, 0, 0)}, .communication = {{{op(Kind::AllReduce, 0, 0)}}}},
      {.compute = {op(Kind::F, 1, 0), op(Kind::BW, 1, 0), op(Kind::Update, 1, 0)},
       .communication = {{{op(Kind::AllReduce, 1, 0)}}}}};
  StepCosts costs;
  costs.shape = schedule.shape;
  costs.duration = costs.duration_last = durations(2, {10}, {20});
  costs.edges = {{0, 1}};
  costs.first_message = {0, 2};
  costs.channels = 4;
  costs.links = {{"NIC", kBytePerNanosecond}};
  costs.routes = {{.links = {0}, .bandwidth = kBytePerNanosecond}};
  for (int channel = 0; channel < 4; ++channel)
    costs.messages.push_back(
        {.occupancy = {40}, .bytes = {40}, .channel = channel, .route = channel % 2 == 0 ? 0 : -1});
  costs.messages_last = costs.messages;
  costs.ready_before_end = {{{0}}, {{0}}};
  const CollectivePhase phase{
      .bytes = 80, .rate = kBytePerNanosecond, .latency = {5}, .time = {85}, .links = {{0, 1.0}}};
  costs.collectives = {{{.bytes = {80}, .time = {85}, .phases = {phase}}},
                       {{.bytes = {80}, .time = {85}, .phases = {phase}}}};
  const Timeline timeline = event_order(schedule, costs);
  // Activations 10-50, F 50-60, BW 60-80 in both copies. At 80 the gradient of copy 0 (40 bytes) and the all-reduce of
  // stage 1 (80 bytes) both want the NIC: half rate each. The gradient ends at 160, the all-reduce then has 40 bytes
  // left: 200, + 5 latency = 205. Copy 1's gradient: 80-120, BW 120-140. Copy 0: BW 160-180, so stage 0's all-reduce
  // starts at 180 and shares with the 20 bytes that are left of the other until 220; see below.
  //   180: other has 80 - 40 - 20 = 20 left; half rate: done at 220, + 5 = 225. Stage 0's has 80 - 20 = 60 left at 220:
  //   280, + 5 = 285.
  CHECK(timeline.transfers[1].sent == Time{160});
  CHECK(timeline.workers[0].compute[1] == Span{{160}, {180}});
  CHECK(timeline.workers[2].compute[1] == Span{{120}, {140}});
  CHECK(timeline.workers[1].communication[kReductions][0] == Span{{80}, {225}});
  CHECK(timeline.workers[3].communication[kReductions][0] == Span{{80}, {225}});
  CHECK(timeline.workers[0].communication[kReductions][0] == Span{{180}, {285}});
  CHECK(timeline.workers[1].compute[2] == Span{{225}, {225}});  // the update waits for its all-reduce
  CHECK(timeline.makespan == Time{285});
  CHECK(validate(timeline, schedule, costs) == "");
}

TEST_CASE("a ring all-reduce moves 2(n-1)/n of its bytes over each hop, in closed form and step by step alike") {
  for (const int n : {2, 3, 4, 5, 8}) {
    CAPTURE(n);
    const Ring ring(n, 840, {7});  // 840 divides by every n: no rounding
    const Time expected{2 * (n - 1) * (840 / n + 7)};
    for (const LinkUse use : {LinkUse::Shared, LinkUse::Private})
      CHECK(ring.all_reduce(use) == Span{{30}, Time{30} + expected});
    CHECK(ring.by_steps() == expected);
  }
}

TEST_CASE("where bytes do not divide by the members, closed form and steps differ by a rounding per step at most") {
  for (const int n : {2, 3, 6, 7})
    for (const std::int64_t bytes : {1, 1000, 99991}) {
      const Ring ring(n, bytes, {1});
      const Span closed = ring.all_reduce(LinkUse::Shared);
      CHECK(std::abs((closed.end - closed.start - ring.by_steps()).value) <= 2 * (n - 1));
    }
}

TEST_CASE("a ring whose hops share a link takes as many times longer, in closed form and step by step alike") {
  // Four members, hops 0 and 2 over one link: weight 2 halves the rate. 2 * 3 steps of 100 bytes at 1/2 byte per ns.
  Ring ring(4, 400, {0});
  ring.costs.routes[2].links = {0};
  CollectivePhase& phase = ring.costs.collectives[0][0].phases[0];
  phase.links = {{0, 2.0}, {1, 1.0}, {3, 1.0}};
  phase.rate = {0.5e9};
  phase.time = ring.costs.collectives[0][0].time = {1200};
  CHECK(ring.all_reduce(LinkUse::Shared) == Span{{30}, {1230}});
  CHECK(ring.by_steps() == Time{1200});
}

TEST_CASE("times that overflow are refused, not wrapped") {
  TwoCopies two;
  two.costs.duration_last[static_cast<std::size_t>(Kind::F)] = {kLargest - 5};
  CHECK_THROWS_WITH_AS(
      event_order(two.schedule, two.costs),
      "the time of a run overflows: it is larger than 2^62 ns or bytes; look for a figure with the wrong unit",
      InputError);
}
