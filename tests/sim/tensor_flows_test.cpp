// Flows that ops of tensor-parallel groups begin and end with (core/cost/tensor_flows.hpp), over links that others use.
#include "core/cost/tensor_flows.hpp"

#include <algorithm>

#include <doctest/doctest.h>

#include "sim/event_order.hpp"
#include "sim/schedules/table.hpp"
#include "sim/simulate.hpp"
#include "sim/static_order.hpp"
#include "tests/support/random_costs.hpp"
#include "tests/support/random_links.hpp"
#include "tests/support/rounds.hpp"

using namespace pipewright::tests;

namespace {

constexpr Bandwidth kByteANanosecond{1e9};

int add_link(StepCosts& costs) {
  costs.links.push_back({"link " + std::to_string(costs.links.size()), kByteANanosecond});
  return static_cast<int>(costs.links.size()) - 1;
}

// Forwards of 20 ns, of which a flow takes 8 over link 0, which the first stage's messages of 10 ns take, too.
struct TwoStages {
  Schedule schedule = find_schedule("gpipe")->generate({.stages = 2, .micro_batches = 2});
  StepCosts costs = plain_costs(schedule.shape, {Time{20}, Time{20}}, {Time{30}, Time{30}}, {});

  TwoStages() {
    costs.routes = {{.links = {add_link(costs)}, .bandwidth = kByteANanosecond}};
    for (auto* table : {&costs.messages, &costs.messages_last})
      for (Message& message : *table)
        if (message.channel == 0) message.route = 0, message.bytes = {10}, message.occupancy = {10};
    StepCosts::TensorFlows flows;
    flows.of_full.resize(2 * kKinds);
    for (const int chunk : {0, 1})
      flows.of_full[at(chunk) * kKinds + at(static_cast<int>(Kind::F))] = {Time{8}, 8};
    flows.of_last = flows.of_full;
    flows.links = {{{0, 1.0}}, {{add_link(costs), 1.0}}};
    costs.tensor_flows = flows;
  }
  Timeline run(Engine engine = Engine::Auto) const {
    const Timeline timeline = simulate(schedule, costs, engine);
    CHECK(validate(costs) == "");
    CHECK(validate(timeline, schedule, costs) == "");
    return timeline;
  }
};

// Of each op a part of its time, at a byte a nanosecond or less.
StepCosts::TensorFlows by_chance(const StepCosts& costs, std::mt19937& random) {
  StepCosts::TensorFlows flows;
  for (const bool last : {false, true})
    for (std::size_t i = 0; i < costs.duration.size(); ++i) {
      const Time whole = (last ? costs.duration_last : costs.duration)[i];
      const auto time = static_cast<std::int64_t>(random() % static_cast<unsigned>(whole.value + 1));
      const bool sends = i % kKinds != at(static_cast<int>(Kind::Update)) && time > 0;
      const double bytes = static_cast<double>(time) / static_cast<double>(1 + random() % 2);
      (last ? flows.of_last : flows.of_full)
          .push_back(sends ? StepCosts::TensorFlows::Sent{Time{time}, bytes} : StepCosts::TensorFlows::Sent{});
    }
  return flows;
}

}  // namespace

TEST_CASE("an op whose exchange meets the message of the op before it takes longer by what it gives way") {
  TwoStages step;
  const Timeline timeline = step.run();
  CHECK(timeline.engine_reason ==
        "transfers and exchanges of tensor-parallel groups meet on link 0; the ops of worker 0 take 4e-06 ms longer");
  // From 20 on 4 of 8 bytes and the message have half of the link each, until 28; 12 of computing; 4 alone.
  CHECK(timeline.workers[0].compute[0] == Span{Time{0}, Time{20}});
  CHECK(timeline.workers[0].compute[1] == Span{Time{20}, Time{44}});
  CHECK(timeline.transfers[0].start == Time{20});
  CHECK(timeline.transfers[0].sent == Time{34});  // 4 by 28, 6 alone
  // The next stage has a link to itself. Its backward's message takes no time.
  CHECK(timeline.workers[1].compute[0] == Span{Time{34}, Time{54}});
}

TEST_CASE("an exchange that needs a fifth of the link gives way to nothing, and a message to a fifth") {
  TwoStages step;
  for (auto* const flows : {&step.costs.tensor_flows->of_full, &step.costs.tensor_flows->of_last})
    for (auto& sent : *flows)
      sent.bytes /= 5;
  const Timeline timeline = step.run();
  CHECK(timeline.workers[0].compute[1] == Span{Time{20}, Time{40}});
  CHECK(timeline.transfers[0].sent == Time{31});  // 3.2 by 24, 6.8 alone
}

TEST_CASE("an op that takes less than it was priced at exchanges no longer than it takes") {
  TwoStages step;
  for (auto* const durations : {&step.costs.duration, &step.costs.duration_last})
    for (Time& duration : *durations)
      duration = {duration.value / 4};
  const Timeline timeline = simulate(step.schedule, step.costs);
  CHECK(validate(timeline, step.schedule, step.costs) == "");
  CHECK(timeline.workers[0].compute[0] == Span{Time{0}, Time{5}});
}

TEST_CASE("one after the other on links: an exchange waits for the message before it") {
  TwoStages step;
  step.costs.sharing = Sharing::Fifo;
  const Timeline timeline = step.run();
  const Span second = timeline.workers[0].compute[1];
  CHECK(timeline.transfers[0].sent - timeline.transfers[0].start == Time{10});
  // 4 and the message in either order, 12, and 4.
  CHECK(second == Span{Time{20}, timeline.transfers[0].start == Time{20} ? Time{50} : Time{40}});
}

TEST_CASE("the last backward's reduction meets what is exchanged behind it") {
  TwoStages step;
  step.schedule = find_schedule("gpipe")->generate(
      {.stages = 1, .micro_batches = 1, .data_parallel = 2, .buckets = {2}, .reduce_each = false});
  step.costs = plain_costs(step.schedule.shape, {Time{20}}, {Time{30}}, {});
  const int link = add_link(step.costs), other = add_link(step.costs);
  const auto reduce = [&](double bytes) {
    const Time time{static_cast<std::int64_t>(bytes)};
    return Collective{{time.value}, time, {{bytes, kByteANanosecond, {}, time, {{link, 1.0}}}}};
  };
  step.costs.collectives[0] = {reduce(10), reduce(6)};
  step.costs.ready_before_end[0] = {Time{6}, Time{0}};
  StepCosts::TensorFlows flows;
  flows.of_full.resize(kKinds);
  flows.of_full[at(static_cast<int>(Kind::BW))] = {Time{8}, 8};
  flows.of_last = flows.of_full;
  flows.links = {{{link, 1.0}}, {{other, 1.0}}};
  step.costs.tensor_flows = flows;
  const Timeline timeline = step.run();
  // Alone the backward of worker 0 runs from 20 to 50. Its first bucket is complete at 44, and takes the link alone for 2; from
  // 46 on it and the last 4 bytes of the exchange have half of it each, until 54; 4 bytes of it are left.
  CHECK(timeline.workers[0].compute[1] == Span{Time{20}, Time{54}});
  CHECK(timeline.workers[1].compute[1] == Span{Time{20}, Time{50}});
  CHECK(timeline.workers[0].communication[kReductions][0] == Span{Time{44}, Time{58}});
  CHECK(timeline.workers[0].communication[kReductions][1] == Span{Time{58}, Time{64}});
}

TEST_CASE("flows of ops that meet nothing change no time, whatever the schedule") {
  int with_buckets = 0;
  for (unsigned seed = 1; seed <= rounds(400U); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const Schedule schedule = random_schedule(random);
    StepCosts costs = random_costs(schedule.shape, random, seed % 3 == 0 ? Wires::Skips : Wires::Chain,
                                   seed % 10 == 0  ? 1
                                   : seed % 2 == 0 ? 4
                                                   : 30);
    add_links(costs, random, LinkLayout::Private);
    const Timeline without = static_order(schedule, costs);
    StepCosts::TensorFlows flows = by_chance(costs, random);
    for (std::size_t worker = 0; worker < without.workers.size(); ++worker)
      flows.links.push_back({{add_link(costs), 1.0}});
    costs.tensor_flows = flows;
    const Timeline timeline = event_order(schedule, costs, LinkUse::Shared);
    CHECK(timeline.makespan == without.makespan);
    CHECK((timeline.transfers == without.transfers));
    for (std::size_t worker = 0; worker < without.workers.size(); ++worker) {
      CHECK((timeline.workers[worker].compute == without.workers[worker].compute));
      CHECK((timeline.workers[worker].communication == without.workers[worker].communication));
      for (const auto& buckets : timeline.workers[worker].communication[kReductions])
        with_buckets += buckets.end > buckets.start ? 1 : 0;
    }
    CHECK(first_shared_link(without, schedule, costs) < 0);
  }
  CHECK(with_buckets > 0);
}

TEST_CASE("flows of ops over links of others: the checker finds no fault, and nothing is faster than alone") {
  int longer = 0;
  for (unsigned seed = 1; seed <= rounds(400U); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const Schedule schedule = random_schedule(random);
    StepCosts costs = random_costs(schedule.shape, random, Wires::Chain, 30);
    add_links(costs, random, LinkLayout::Shared);
    if (seed % 4 == 0) costs.sharing = Sharing::Fifo;
    StepCosts::TensorFlows flows = by_chance(costs, random);
    const std::size_t workers = schedule.positions.size() * at(schedule.shape.data_parallel);
    for (std::size_t worker = 0; worker < workers; ++worker)
      flows.links.push_back({{static_cast<int>(random() % costs.links.size()), 1.0}});
    costs.tensor_flows = flows;
    const Timeline timeline = event_order(schedule, costs, LinkUse::Shared);
    CHECK(validate(timeline, schedule, costs) == "");
    for (std::size_t worker = 0; worker < workers; ++worker) {
      const auto& ops = schedule.lane_of(WorkerId{worker}).compute;
      for (std::size_t i = 0; i < ops.size(); ++i) {
        const Span span = timeline.workers[worker].compute[i];
        CHECK(span.end - span.start >= costs.time_of(ops[i]));
        longer += span.end - span.start > costs.time_of(ops[i]) ? 1 : 0;
      }
    }
  }
  CHECK(longer > 1000);
}
