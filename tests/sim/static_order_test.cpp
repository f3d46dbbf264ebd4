#include "sim/static_order.hpp"

#include <doctest/doctest.h>

#include "sim/simulate.hpp"
#include "tests/support/op.hpp"

using namespace pipewright::tests;

namespace {

// Two stages, two micro-batches, GPipe; forward 10, backward 20, each message occupies its channel for 4 and then
// travels 3.
struct TwoStages {
  Schedule schedule;
  StepCosts costs;
  TwoStages() {
    schedule.shape = {.stages = 2, .micro_batches = 2};
    for (int stage : {0, 1}) {
      Lane lane;
      lane.compute = {op(Kind::F, stage, 0), op(Kind::F, stage, 1), op(Kind::BW, stage, 1), op(Kind::BW, stage, 0)};
      schedule.positions.push_back(lane);
    }
    costs.shape = schedule.shape;
    costs.duration.assign(2 * kKinds, Time{0});
    for (std::size_t stage : {0u, 1u}) {
      costs.duration[stage * kKinds + static_cast<std::size_t>(Kind::F)] = {10};
      costs.duration[stage * kKinds + static_cast<std::size_t>(Kind::BW)] = {20};
      costs.duration[stage * kKinds + static_cast<std::size_t>(Kind::Update)] = {5};
    }
    costs.duration_last = costs.duration;
    costs.edges = {{0, 1}};
    costs.messages = {{.occupancy = {4}, .latency = {3}, .bytes = {100}, .channel = 0},
                      {.occupancy = {4}, .latency = {3}, .bytes = {100}, .channel = 1}};
    costs.messages_last = costs.messages;
    costs.first_message = {0, 1};
    costs.channels = 2;
  }
};

}  // namespace

TEST_CASE("a stage waits for occupancy and latency of the hop, and sends without being blocked") {
  const TwoStages two;
  const Timeline timeline = static_order(two.schedule, two.costs);
  // Stage 0: F0 0-10, F1 10-20. Arrivals at stage 1: 10+4+3 = 17 and 20+4+3 = 27.
  CHECK(timeline.workers[0].compute[1] == Span{{10}, {20}});
  CHECK(timeline.workers[1].compute[0] == Span{{17}, {27}});
  CHECK(timeline.workers[1].compute[1] == Span{{27}, {37}});
  CHECK(timeline.workers[1].compute[2] == Span{{37}, {57}});   // BW1
  CHECK(timeline.workers[1].compute[3] == Span{{57}, {77}});   // BW0
  CHECK(timeline.workers[0].compute[2] == Span{{64}, {84}});   // 57 + 7
  CHECK(timeline.workers[0].compute[3] == Span{{84}, {104}});  // both gradients are there: 84 >= 77 + 7
  CHECK(timeline.makespan == Time{104});
  CHECK(static_order_makespan(two.schedule, two.costs) == Time{104});
  CHECK(validate(timeline, two.schedule, two.costs) == "");
}

TEST_CASE("messages of a channel follow one another") {
  TwoStages two;
  two.costs.messages[0].occupancy = two.costs.messages_last[0].occupancy = {25};
  const Timeline timeline = static_order(two.schedule, two.costs);
  // Sent 10..35 and, the channel being busy, 35..60; arrived 38 and 63.
  REQUIRE(timeline.transfers.size() == 4);
  CHECK(timeline.transfers[0].sent == Time{35});
  CHECK(timeline.transfers[1].posted == Time{20});
  CHECK(timeline.transfers[1].start == Time{35});
  CHECK(timeline.transfers[1].arrived == Time{63});
  CHECK(timeline.workers[1].compute[1] == Span{{63}, {73}});
  CHECK(validate(timeline, two.schedule, two.costs) == "");
}

TEST_CASE("an all-reduce begins when the slower copy is ready, and the update waits for it") {
  // Two copies of one stage; the gradients of bucket 0 are complete 8 before the end of the last backward.
  Schedule schedule;
  schedule.shape = {.stages = 1, .micro_batches = 1, .data_parallel = 2, .buckets = {2}};
  Lane lane;
  lane.compute = {op(Kind::F, 0, 0), op(Kind::BW, 0, 0), op(Kind::Update, 0, 0)};
  lane.communication[kReductions] = {op(Kind::AllReduce, 0, 0, 0), op(Kind::AllReduce, 0, 0, 1)};
  schedule.positions = {lane};
  StepCosts costs;
  costs.shape = schedule.shape;
  costs.duration.assign(kKinds, Time{0});
  costs.duration[static_cast<std::size_t>(Kind::F)] = {10};
  costs.duration[static_cast<std::size_t>(Kind::BW)] = {20};
  costs.duration[static_cast<std::size_t>(Kind::Update)] = {5};
  costs.duration_last = costs.duration;
  costs.ready_before_end = {{{8}, {0}}};
  costs.collectives = {{Collective{.time = {6}}, Collective{.time = {11}}}};
  const Timeline timeline = static_order(schedule, costs);
  for (const LaneTimes& worker : timeline.workers) {
    CHECK(worker.communication[kReductions][0] == Span{{22}, {28}});  // 30 - 8
    CHECK(worker.communication[kReductions][1] == Span{{30}, {41}});
    CHECK(worker.compute[2] == Span{{41}, {46}});
  }
  CHECK(timeline.makespan == Time{46});
  CHECK(validate(timeline, schedule, costs) == "");
}

TEST_CASE("the check of a timeline refuses planted faults") {
  const TwoStages two;
  const Timeline good = static_order(two.schedule, two.costs);
  const auto broken = [&](auto&& change) {
    Timeline timeline = good;
    change(timeline);
    return validate(timeline, two.schedule, two.costs);
  };
  CHECK(broken([](Timeline& t) { t.workers[1].compute[0] = {{16}, {26}}; }).find("0F0") == std::string::npos);
  CHECK(broken([](Timeline& t) {
          t.workers[1].compute[0] = {{16}, {26}};
        }) == "worker 1: 1F0 starts before what it needs has arrived");
  CHECK(broken([](Timeline& t) {
          t.workers[0].compute[3] = {{85}, {105}}, t.makespan = {105};
        }) == "worker 0: 0B0 waits for nothing");
  CHECK(broken([](Timeline& t) { t.workers[0].compute[0].end = {11}; }) ==
        "worker 0: 0F0 does not take the time it is priced at");
  CHECK(broken([](Timeline& t) { t.makespan = {103}; }) == "the makespan is not the last end");
  CHECK(broken([](Timeline& t) { t.transfers[0].arrived = {16}; }) ==
        "edge 0: micro-batch 0 does not travel as priced");
  CHECK(broken([](Timeline& t) { t.transfers.pop_back(); }) == "worker 0: 0B0 needs a tensor that was never sent");
}

TEST_CASE("links on which transfers meet are found") {
  TwoStages two;
  two.costs.links = {{"wire", {25.0}}};
  two.costs.routes = {{.links = {0}, .bandwidth = {25.0}, .latency = {3}}};
  for (auto* messages : {&two.costs.messages, &two.costs.messages_last})
    for (Message& message : *messages)
      message.route = 0;  // half duplex: both directions on one link
  // Forward messages 10-14 and 20-24, gradients 57-61 and 77-81: they never meet.
  CHECK(first_shared_link(static_order(two.schedule, two.costs), two.schedule, two.costs) == -1);
  // 1F1B and 60 on the wire: forwards travel 10-70 and 70-130; F0 arrives at 73, BW0 ends at 103 and its gradient meets
  // F1.
  auto& last_stage = two.schedule.positions[1].compute;
  last_stage = {op(Kind::F, 1, 0), op(Kind::BW, 1, 0), op(Kind::F, 1, 1), op(Kind::BW, 1, 1)};
  for (auto* messages : {&two.costs.messages, &two.costs.messages_last})
    for (Message& message : *messages)
      message.occupancy = {60};
  const Timeline timeline = static_order(two.schedule, two.costs);
  CHECK(timeline.transfers[1].start == Time{70});
  CHECK(timeline.transfers[2].start == Time{103});
  CHECK(first_shared_link(timeline, two.schedule, two.costs) == 0);
}
