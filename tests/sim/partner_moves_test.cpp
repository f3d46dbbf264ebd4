// BPipe: what goes to a partner and comes back, in times, memory and faults.                        [BPipe23] section 3
#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/cost/memory_model.hpp"
#include "core/cost/step_costs.hpp"
#include "sim/event_order.hpp"
#include "sim/schedules/table.hpp"
#include "sim/simulate.hpp"
#include "sim/static_order.hpp"
#include "tests/sim/move_costs.hpp"
#include "tests/support/oracle_engine.hpp"
#include "tests/support/random_costs.hpp"

using namespace pipewright::tests;

namespace {

Schedule bpipe_of(const ScheduleShape& shape) {
  return find_schedule("bpipe")->generate(shape);
}

// The most activations on a worker at once: its own from the forward's begin to the backward's end, less those that are
// away, and what it keeps for its partner. Counted when an op begins, by the order of the list, as a forward and its
// backward may come and go in one moment; and at the end of every moment at which something comes from elsewhere.
int most_held(const Schedule& schedule, const Timeline& timeline, int worker) {
  const int K = schedule.shape.stages;
  std::vector<Span> away, kept;
  const auto moves = [&](int of, std::vector<Span>& spans, const auto& span) {
    const Lane& lane = schedule.positions[of];
    const auto& streams = timeline.workers[at(of)].communication;
    const std::vector<Span>&out = streams[kOut], &in = streams[kIn];
    for (std::size_t i = 0; i < out.size(); ++i)
      for (std::size_t j = 0; j < in.size(); ++j)
        if (lane.communication[kOut][i].micro_batch == lane.communication[kIn][j].micro_batch)
          spans.push_back(span(out[i], in[j]));
  };
  moves(worker, away, [](Span out, Span in) { return Span{out.end, in.start}; });
  if (K - 1 - worker != worker) moves(K - 1 - worker, kept, [](Span out, Span in) { return Span{out.start, in.end}; });
  const auto& ops = schedule.positions[worker].compute;
  const auto& times = timeline.workers[at(worker)].compute;
  std::vector<std::pair<std::size_t, std::size_t>> own;  // forward and backward
  for (std::size_t i = 0; i < ops.size(); ++i)
    for (std::size_t j = i; j < ops.size() && ops[i].kind == Kind::F; ++j)
      if (ops[j].kind == Kind::BW && ops[j].micro_batch == ops[i].micro_batch) own.emplace_back(i, j);
  std::ptrdiff_t most = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {  // what returns or arrives at this moment does so behind the ops
    const Time now = times[i].start;
    most = std::max(most, std::ranges::count_if(own, [&](auto op) { return op.first <= i && i <= op.second; }) +
                              std::ranges::count_if(kept, [&](Span s) { return s.start < now && now < s.end; }) -
                              std::ranges::count_if(away, [&](Span s) { return s.start <= now && now <= s.end; }));
  }
  std::vector<Time> moments;
  for (const Span& span : away)
    moments.push_back(span.end);
  for (const Span& span : kept)
    moments.push_back(span.start);
  for (const Time now : moments) {
    const auto there = [&](Span s) { return s.start <= now && now < s.end; };
    most = std::max(most, std::ranges::count_if(own,
                                                [&](auto op) {
                                                  return there({times[op.first].start, times[op.second].end});
                                                }) +
                              std::ranges::count_if(kept, there) - std::ranges::count_if(away, there));
  }
  return static_cast<int>(most);
}

MemoryModel one_byte_each(const ScheduleShape& shape) {
  const ChunkMemory chunk{.stash = {Bytes{1}, Bytes{1}}, .boundary = {Bytes{1}, Bytes{1}}};
  return {.chunks = std::vector<ChunkMemory>(at(shape.chunks()), chunk), .reserve = {}, .capacity = {}};
}

}  // namespace

// K = 4, M = 6, f = 1, b = 2; stage 0 keeps 3. Micro-batch 2 goes out at 3 and must be back at 16, asked for at 15.
TEST_CASE("moves are hidden until they take longer than the op that they run next to") {
  const ScheduleShape shape{.stages = 4, .micro_batches = 6};
  const Schedule schedule = bpipe_of(shape);
  REQUIRE(validate(schedule) == "");
  CHECK(move_labels(schedule.positions[0].communication[kOut]) == "0OFFLOAD2 0OFFLOAD4");
  CHECK(move_labels(schedule.positions[0].communication[kIn]) == "0RELOAD2 0RELOAD4");
  for (int k = 1; k < 4; ++k)
    CHECK(schedule.positions[k].ops() == schedule.positions[k].compute.size());
  struct Case {
    std::int64_t move, step;
    Span first_reload;
  };
  for (const Case& one : {Case{0, 27, {Time{15}, Time{15}}}, Case{1, 27, {Time{15}, Time{16}}},
                          Case{2, 27, {Time{15}, Time{17}}}, Case{4, 31, {Time{17}, Time{21}}}}) {
    const StepCosts costs = move_costs(shape, one.move);
    for (const Timeline& timeline : {static_order(schedule, costs), event_order(schedule, costs, LinkUse::Private),
                                     oracle_timeline(schedule, costs)}) {
      CHECK(timeline.makespan == Time{one.step});
      CHECK(timeline.workers[0].communication[kOut][0] == Span{Time{3}, Time{3 + one.move}});
      CHECK(timeline.workers[0].communication[kIn][0] == one.first_reload);
      CHECK(validate(timeline, schedule, costs) == "");
    }
  }
}

TEST_CASE("no stage holds more than ceil((K+2)/2) with moves that take no time, and steps are 1F1B's") {
  for (int K = 2; K <= 16; ++K)
    for (const int M : {1, 2, K - 1, K, K + 1, 2 * K, 5 * K}) {
      if (M < 1) continue;
      const ScheduleShape shape{.stages = K, .micro_batches = M};
      const Schedule schedule = bpipe_of(shape);
      CAPTURE(K);
      CAPTURE(M);
      REQUIRE(validate(schedule) == "");
      const StepCosts costs = move_costs(shape, 0);
      const Timeline timeline = static_order(schedule, costs);
      CHECK(timeline.makespan == Time{3 * (M + K - 1)});
      for (int k = 0; k < K; ++k) {
        CHECK(most_held(schedule, timeline, k) <= std::max(3, (K + 3) / 2));
        for (const std::int64_t move : {1, 3, 10})  // whatever they take, who gives waits for its moves
          if (2 * k < K - 1)
            CHECK(most_held(schedule, static_order(schedule, move_costs(shape, move)), k) <= std::max(3, (K + 3) / 2));
        CHECK(schedule.positions[k].compute == find_schedule("1f1b")->generate(shape).positions[k].compute);
      }
    }
}

// The last stage computes in no time: its one micro-batch comes and goes at 1, and was there.
TEST_CASE("what a forward and its backward of no duration hold is counted, by both") {
  const ScheduleShape shape{.stages = 2, .micro_batches = 1};
  const Schedule schedule = bpipe_of(shape);
  const StepCosts costs = plain_costs(shape, {Time{1}, Time{0}}, {Time{2}, Time{0}}, Time{0});
  const Timeline timeline = static_order(schedule, costs);
  REQUIRE(timeline.workers[1].compute[0] == Span{Time{1}, Time{1}});
  MemoryModel memory = one_byte_each(shape);
  memory.fixed.resize(2);
  CHECK(most_held(schedule, timeline, 1) == 1);
  CHECK(peaks(memory, schedule, costs, timeline)[1].bytes.stash == Bytes{1});
  CHECK(peak(memory, schedule, 1).bytes.stash == Bytes{1});
}

TEST_CASE("memory on both sides is what counting at every moment gives, and the walk without a clock is not below") {
  int moved = 0;
  for (unsigned seed = 1; seed <= 8; ++seed) {
    std::mt19937 random(seed);
    for (int run = 0; run < 300; ++run) {
      ScheduleShape shape{.stages = 2 + static_cast<int>(random() % 7),
                          .micro_batches = 1 + static_cast<int>(random() % 20)};
      shape.most_in_flight = random() % 2 == 0 ? 0 : 3 + static_cast<int>(random() % 3);
      const Schedule schedule = bpipe_of(shape);
      const std::int64_t longest = random() % 2 == 0 ? 20 : 3;  // the shorter, the more at one moment
      StepCosts costs = random_costs(shape, random, Wires::Chain, longest);
      for (Collective& one : costs.moves)
        one.time = Time{static_cast<std::int64_t>(random()) % (2 * longest)};
      CAPTURE(seed);
      CAPTURE(run);
      const Timeline timeline = static_order(schedule, costs);
      CHECK(validate(timeline, schedule, costs) == "");
      CHECK(event_order(schedule, costs, LinkUse::Private).workers == timeline.workers);
      MemoryModel memory = one_byte_each(shape);
      memory.fixed.resize(at(shape.stages));  // messages are no buffers
      const std::vector<MemoryPeak> all = peaks(memory, schedule, costs, timeline);
      for (int k = 0; k < shape.stages; ++k) {
        CAPTURE(k);
        CHECK(all[at(k)].bytes.stash == Bytes{most_held(schedule, timeline, k)});
        CHECK(all[at(k)].bytes == peak(series(memory, schedule, costs, timeline, k), schedule, k).bytes);
        const MemoryPeak walk = peak(memory, schedule, k);
        CHECK(walk.bytes.stash >= all[at(k)].bytes.stash);
        CHECK(walk.in_flight == find_schedule("bpipe")->peak_in_flight(shape, k));
        moved += schedule.positions[k].communication[kOut].empty() ? 0 : 1;
      }
    }
  }
  CHECK(moved > 1000);
}

TEST_CASE("Moves that stand in another order, come back twice or never, or have no partner are named") {
  const ScheduleShape shape{.stages = 4, .micro_batches = 6};
  const auto fault_of = [&](const auto& plant) {
    Schedule schedule = bpipe_of(shape);
    plant(schedule.positions[0].communication[kOut], schedule.positions[0].communication[kIn], schedule);
    return validate(schedule);
  };
  CHECK(fault_of([](auto& out, auto&, auto&) { std::swap(out[0], out[1]); }) ==
        "worker 0 (stage 0): 0OFFLOAD2 stands behind that of a later forward");
  CHECK(fault_of([](auto&, auto& in, auto&) { std::swap(in[0], in[1]); }) ==
        "worker 0 (stage 0): 0RELOAD2 stands behind one that is needed later");
  CHECK(fault_of([](auto& out, auto&, auto&) { out[1] = out[0]; }) ==
        "worker 0 (stage 0): 0OFFLOAD2 stands in the list twice");
  CHECK(fault_of([](auto&, auto& in, auto&) { in.pop_back(); }) ==
        "worker 0 (stage 0): 0OFFLOAD4 is never brought back");
  CHECK(fault_of([](auto& out, auto&, auto&) { out.pop_back(); }) ==
        "worker 0 (stage 0): 0RELOAD4 brings back what is not out");
  CHECK(fault_of([](auto& out, auto&, auto&) { out[0].virtual_stage = 1; }) ==
        "worker 0 (stage 0): 1OFFLOAD2 moves what is not on its worker");
  CHECK(fault_of([](auto& out, auto&, auto&) { out[0].micro_batch = 60; }) ==
        "worker 0 (stage 0): 0OFFLOAD60 moves what is not on its worker");
  CHECK(fault_of([](auto& out, auto& in, auto&) { std::swap(out[0], in[0]); }) ==
        "worker 0 (stage 0): 0RELOAD2 is not an op of the stream out");
  const ScheduleShape odd{.stages = 3, .micro_batches = 4};
  Schedule middle = bpipe_of(odd);
  middle.positions[1].communication[kOut].push_back({Kind::Offload, 1, 0, 0});
  CHECK(validate(middle) == "worker 1 (stage 1): 1OFFLOAD0 has no partner: its stage is the one in the middle");
}

TEST_CASE("A timeline whose moves come too early, or whose ops do not wait for them, is refused") {
  const ScheduleShape shape{.stages = 4, .micro_batches = 6};
  const Schedule schedule = bpipe_of(shape);
  const StepCosts costs = move_costs(shape, 4);
  const Timeline good = static_order(schedule, costs);
  const auto fault_of = [&](const auto& plant) {
    Timeline timeline = good;
    plant(timeline.workers[0]);
    return validate(timeline, schedule, costs);
  };
  const auto earlier = [](Span& span, std::int64_t by) { span = {span.start - Time{by}, span.end - Time{by}}; };
  CHECK(fault_of([&](LaneTimes& times) { earlier(times.communication[kOut][0], 1); }) ==
        "worker 0: offload of stage 0 starts before its forward has ended");
  CHECK(fault_of([&](LaneTimes& times) { earlier(times.communication[kIn][0], 1); }) ==
        "worker 0: reload of stage 0 starts more than an op ahead, or before it is out");
  CHECK(fault_of([&](LaneTimes& times) { times.communication[kOut][0].end = Time{5}; }) ==
        "worker 0: offload of stage 0 is faster than priced");
  // B2 must wait for its reload, which ends at 19.
  CHECK(fault_of([&](LaneTimes& times) { earlier(times.compute[8], 1); }).find("starts before what it needs") !=
        std::string::npos);
}

TEST_CASE("bpipe says what it cannot do") {
  const ScheduleRule& rule = *find_schedule("bpipe");
  CHECK(rule.refusal({.stages = 4, .micro_batches = 6, .most_in_flight = 2}) ==
        "bpipe needs room for 3 micro-batches on a stage: one is computed, one waits for its backward, one comes back "
        "meanwhile; use plan.most_in_flight: 3 or more");
  CHECK(rule.refusal({.stages = 4, .micro_batches = 2, .most_in_flight = 2}).empty());
  CHECK_FALSE(rule.refusal({.stages = 4, .virtual_stages = 2, .micro_batches = 8}).empty());
  CHECK_FALSE(rule.refusal({.stages = 2, .micro_batches = 8, .replicas = {2, 1}}).empty());
}
