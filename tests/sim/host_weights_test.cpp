// Weights and gradients in the host's memory: when their shards are copied, and what is held meanwhile.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/cost/memory_model.hpp"
#include "sim/schedules/expand.hpp"
#include "sim/schedules/table.hpp"
#include "sim/waiting.hpp"
#include "tests/sim/move_costs.hpp"
#include "tests/support/agreed.hpp"

using namespace pipewright::tests;

namespace {

ScheduleShape two_units(int micro_batches) {
  return {.stages = 1,
          .micro_batches = micro_batches,
          .data_parallel = 2,
          .units = 2,
          .resharding = Resharding{.from_host = true},
          .reduce_each = true};
}

// Forwards of 2, backwards of 4, gathers and reductions of 1, updates of 3.
StepCosts shard_costs(const ScheduleShape& shape, std::int64_t fetch, std::int64_t store, std::int64_t add) {
  const auto chunks = at(shape.chunks());
  StepCosts costs = plain_costs(shape, std::vector<Time>(chunks, Time{2}), std::vector<Time>(chunks, Time{4}), Time{});
  for (std::size_t v = 0; v < chunks; ++v)
    costs.duration[v * kKinds + at(static_cast<int>(Kind::Update))] = Time{3};
  costs.duration_last = costs.duration;
  costs.gathers.assign(chunks, Collective{{1}, Time{1}, {}});
  if (shape.resharding->over > 0) costs.other_gathers = costs.gathers;
  costs.collectives.assign(chunks, {Collective{{1}, Time{1}, {}}});
  costs.host_copies.clear();
  for (std::size_t v = 0; v < chunks; ++v)
    for (const std::int64_t time : {fetch, store, store + add})
      costs.host_copies.push_back({{1}, Time{time}, {}});
  return costs;
}

std::vector<Span> spans(std::initializer_list<std::pair<int, int>> of) {
  std::vector<Span> all;
  for (const auto& [start, end] : of)
    all.push_back({Time{start}, Time{end}});
  return all;
}

}  // namespace

// Copies of 1: F0 waits for its shard and its gather, everything else hides; the updates wait for the last gradients. Copies
// of 5 and 6: F1 waits for its shard, which comes while the first is gathered, and so does B0.
TEST_CASE("shards come two ops ahead and go behind their reduction, and the updates wait for the last") {
  const ScheduleShape shape = two_units(1);
  const Schedule schedule = find_schedule("1f1b")->generate(shape);
  REQUIRE(validate(schedule) == "");
  const Lane& lane = schedule.positions[0];
  CHECK(move_labels(lane.compute) == "0F0 1F0 1B0 0B0 1U0 0U0");
  CHECK(move_labels(lane.communication[kGathers]) == "0AG0.0 1AG0.0 0AG0.1");
  CHECK(move_labels(lane.communication[kIn]) == "0FETCH0.0 1FETCH0.0 0FETCH0.1");
  CHECK(move_labels(lane.communication[kReductions]) == "1AR0.0 0AR0.0");
  CHECK(move_labels(lane.communication[kOut]) == "1STORE0 0STORE0");

  const Timeline hidden = agreed_timeline(schedule, shard_costs(shape, 1, 1, 0));
  for (const LaneTimes& times : hidden.workers) {
    CHECK(times.communication[kIn] == spans({{0, 1}, {1, 2}, {4, 5}}));
    CHECK(times.communication[kGathers] == spans({{1, 2}, {2, 3}, {6, 7}}));
    CHECK(times.compute == spans({{2, 4}, {4, 6}, {6, 10}, {10, 14}, {16, 19}, {19, 22}}));
    CHECK(times.communication[kReductions] == spans({{10, 11}, {14, 15}}));
    CHECK(times.communication[kOut] == spans({{11, 12}, {15, 16}}));
  }
  CHECK(hidden.makespan == Time{22});

  const Timeline exposed = agreed_timeline(schedule, shard_costs(shape, 5, 6, 0));
  for (const LaneTimes& times : exposed.workers) {
    CHECK(times.communication[kIn] == spans({{0, 5}, {5, 10}, {11, 16}}));
    CHECK(times.communication[kGathers] == spans({{5, 6}, {10, 11}, {16, 17}}));
    CHECK(times.compute == spans({{6, 8}, {11, 13}, {13, 17}, {17, 21}, {30, 33}, {33, 36}}));
    CHECK(times.communication[kReductions] == spans({{17, 18}, {21, 22}}));
    CHECK(times.communication[kOut] == spans({{18, 24}, {24, 30}}));
  }
  CHECK(exposed.makespan == Time{36});
}

// With copies of 5 and 6: from 13 to 17 both units' weights are whole, and unit 1's gradients, while the shard of unit 0 comes
// for its backward. Shards of gradients are held from 18 and 22 on, both from 22 to 24.
TEST_CASE("shards take room from the start of their copy to the end of the gather, and from the reduction on") {
  const ScheduleShape shape = two_units(1);
  const Schedule schedule = find_schedule("1f1b")->generate(shape);
  const StepCosts costs = shard_costs(shape, 5, 6, 0);
  const Timeline timeline = agreed_timeline(schedule, costs);
  const ChunkMemory chunk{.gathered = Bytes{20}, .unreduced = Bytes{40}, .fetched = Bytes{10}, .stored = Bytes{7}};
  const MemoryModel memory{
      .chunks = std::vector<ChunkMemory>(2, chunk), .reserve = {}, .capacity = {}, .reduces_in_place = true};
  const MemoryPeak most = peaks(memory, schedule, costs, timeline).front();
  CHECK(most.bytes == MemoryBytes{.weights = Bytes{40}, .gradients = Bytes{40}, .buffers = Bytes{10}});
  CHECK(most.at == Time{13});
  CHECK(label(most.owner) == "1B0");
  const auto buffers = [&](int at) {
    Bytes held;
    for (const MemoryPoint& point : series(memory, schedule, costs, timeline, 1))
      if (point.at <= Time{at}) held = point.bytes.buffers;
    return held;
  };
  for (const auto& [at, bytes] :
       {std::pair{0, 10}, {5, 20}, {6, 10}, {11, 10}, {17, 0}, {18, 7}, {22, 14}, {24, 7}, {30, 0}}) {
    CAPTURE(at);
    CHECK(buffers(at) == Bytes{bytes});
  }
}

// Copies of 1, and 4 to add: the second backward of unit 0 waits for the host, which has unit 1's gradients at 24 and has added
// them at 28.
TEST_CASE("the host adds to what it has from the second micro-batch on, and the device waits for it") {
  const ScheduleShape shape = two_units(2);
  const Schedule schedule = find_schedule("1f1b")->generate(shape);
  REQUIRE(validate(schedule) == "");
  std::vector<std::uint32_t> adds;
  for (const Op& op : schedule.positions[0].communication[kOut])
    adds.push_back(op.bucket);
  CHECK(adds == std::vector<std::uint32_t>{0, 0, 1, 1});
  const Timeline timeline = agreed_timeline(schedule, shard_costs(shape, 1, 1, 4));
  const auto& stores = timeline.workers[0].communication[kOut];
  CHECK(stores[1].end - stores[1].start == Time{1});
  CHECK(stores[2].end - stores[2].start == Time{5});
  CHECK(timeline.workers[0].compute ==
        spans({{2, 4}, {4, 6}, {6, 10}, {10, 14}, {14, 16}, {16, 18}, {18, 22}, {28, 32}, {38, 41}, {41, 44}}));
  CHECK(stores[2] == Span{Time{23}, Time{28}});
  CHECK(timeline.makespan == Time{44});
}

TEST_CASE("what few members have of it is not copied again") {
  ScheduleShape shape = two_units(1);
  shape.data_parallel = 4, shape.resharding->over = 2;
  const Schedule schedule = find_schedule("1f1b")->generate(shape);
  REQUIRE(validate(schedule) == "");
  CHECK(schedule.positions[0].communication[kGathers].size() == 3);
  CHECK(move_labels(schedule.positions[0].communication[kIn]) == "0FETCH0.0 1FETCH0.0");
  agreed_timeline(schedule, shard_costs(shape, 5, 6, 0));
}

TEST_CASE("the critical path names the copies") {
  const ScheduleShape shape = two_units(1);
  const Schedule schedule = find_schedule("1f1b")->generate(shape);
  const StepCosts costs = shard_costs(shape, 5, 6, 0);
  const Timeline timeline = agreed_timeline(schedule, costs);
  const Causes causes(timeline, schedule, costs);
  Time sum;
  std::vector<std::string> parts;
  for (const CriticalPart& part : critical_path(causes, timeline, schedule, costs))
    sum += part.time, parts.push_back(part.what);
  CHECK(sum == timeline.makespan);
  // 0..5 first shard, 5..10 second, 10..11 gather, F1, B1, reduction, two stores, two updates
  CHECK(parts == std::vector<std::string>{"gradients to the host of stage 0", "weights from the host of stage 0",
                                          "update of stage 0", "backward of stage 0", "forward of stage 0",
                                          "all-reduce of stage 0", "all-gather of stage 0"});
}

TEST_CASE("checks of shards by hand") {
  const Schedule good = find_schedule("1f1b")->generate(two_units(1));
  const auto fault = [&](const auto& change) {
    Schedule schedule = good;
    change(schedule.positions[0].communication);
    return validate(schedule);
  };
  CHECK(fault([](auto& streams) { streams[kIn].pop_back(); }) ==
        "worker 0 (stage 0): its stream in is not a shard for each all-gather");
  CHECK(fault([](auto& streams) { std::swap(streams[kIn][0], streams[kIn][1]); }) ==
        "worker 0 (stage 0): its stream in is not a shard for each all-gather");
  CHECK(fault([](auto& streams) { streams[kOut][0].bucket = 1; }) ==
        "worker 0 (stage 0): its stream out is not a shard for each all-reduce");
  const StepCosts costs = shard_costs(two_units(1), 5, 6, 0);
  const Timeline right = agreed_timeline(good, costs);
  const auto wrong = [&](const auto& change) {
    Timeline timeline = right;
    for (LaneTimes& times : timeline.workers)
      change(times);
    return validate(timeline, good, costs);
  };
  const auto earlier = [](Span& span, int by) { span.start -= Time{by}, span.end -= Time{by}; };
  CHECK(wrong([&](LaneTimes& times) { earlier(times.communication[kIn][2], 1); }) ==
        "worker 0: reload of stage 0 starts more than two ops ahead");
  CHECK(wrong([&](LaneTimes& times) { earlier(times.communication[kGathers][1], 1); }) ==
        "worker 0: all-gather of stage 1 starts before its shard is there");
  CHECK(wrong([&](LaneTimes& times) { earlier(times.communication[kOut][0], 1); }) ==
        "worker 0: offload of stage 1 starts before its gradients are reduced");
  CHECK(wrong([&](LaneTimes& times) { earlier(times.compute[4], 1); }).find("starts before what it needs") !=
        std::string::npos);
}
