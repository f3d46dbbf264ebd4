// Sharded weights: which gathers a schedule gets, and how they run next to compute and to the all-reduces.
#include <algorithm>

#include <doctest/doctest.h>

#include "sim/schedules/expand.hpp"
#include "sim/schedules/table.hpp"
#include "tests/support/agreed.hpp"

using namespace pipewright::tests;

namespace {

// `chunks` units on one worker, in two copies.
Schedule sharded(int chunks, int micro_batches, const Resharding& when, int copies = 2) {
  const ScheduleShape shape{
      .stages = 1, .virtual_stages = chunks, .micro_batches = micro_batches, .data_parallel = copies};
  const ScheduleRule* rule = find_schedule(chunks == 1 ? "gpipe" : "interleaved_1f1b");
  REQUIRE(rule->refusal(shape) == "");
  Schedule schedule = rule->generate(shape);
  gather_weights(schedule, when);
  REQUIRE(validate(schedule) == "");
  return schedule;
}

StepCosts priced(const Schedule& schedule, std::int64_t compute, std::int64_t backward, std::int64_t gather,
                 std::int64_t reduce) {
  const auto chunks = at(schedule.shape.chunks());
  StepCosts costs = plain_costs(schedule.shape, std::vector<Time>(chunks, Time{compute}),
                                std::vector<Time>(chunks, Time{backward}), Time{});
  costs.gathers.assign(chunks, Collective{{1}, Time{gather}, {}});
  costs.collectives.assign(chunks, {Collective{{1}, Time{reduce}, {}}});
  costs.ready_before_end.assign(chunks, {Time{}});
  return costs;
}

std::vector<std::string> gathers(const Schedule& schedule) {
  std::vector<std::string> names;
  for (const Op& op : schedule.positions[0].communication[kGathers])
    names.push_back(label(op));
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("A chunk is gathered for each pass that finds it given away; the last one is kept between its passes") {
  CHECK(gathers(sharded(3, 1, {})) == Names{"0AG0.0", "1AG0.0", "2AG0.0", "1AG0.1", "0AG0.1"});
  CHECK(gathers(sharded(3, 1, {.after_forward = false})) == Names{"0AG0.0", "1AG0.0", "2AG0.0"});
  // Two micro-batches, F0 F1 B0 B1 of one chunk: it is read by one op after the other.
  CHECK(gathers(sharded(1, 2, {})) == Names{"0AG0.0"});
  const Names all = gathers(sharded(2, 2, {.after_forward = true, .after_backward = false}));
  CHECK(std::count(all.begin(), all.end(), "1AG0.1") == 0);
}

TEST_CASE("A recomputation and its backward share a gather") {
  const ScheduleShape shape{
      .stages = 1, .virtual_stages = 2, .micro_batches = 1, .data_parallel = 2, .recompute = {true}};
  Schedule schedule = find_schedule("interleaved_1f1b")->generate(shape);
  gather_weights(schedule, {});
  REQUIRE(validate(schedule) == "");
  CHECK(gathers(schedule) == Names{"0AG0.0", "1AG0.0", "0AG0.1"});
  agreed_timeline(schedule, priced(schedule, 3, 6, 2, 2));
}

// [FSDP23] section 3.3. Forward of four units: each gather hides behind the unit before, or the gathers limit.
TEST_CASE("Gathers one ahead: 2 + 4 * 3 where compute limits, 4 * 4 + 3 where gathers do") {
  const auto forwards_end = [](std::int64_t gather) {
    const Schedule schedule = sharded(4, 1, {});
    return agreed_timeline(schedule, priced(schedule, 3, 6, gather, 2)).workers[0].compute[3].end;
  };
  CHECK(forwards_end(2) == Time{14});
  CHECK(forwards_end(4) == Time{19});
  CHECK(forwards_end(0) == Time{12});
}

// The last unit is kept, so that four backwards of 6 follow at once; the last one's reduction is exposed.
TEST_CASE("Backward: gathers and reductions hide but for the last reduction") {
  const Schedule schedule = sharded(4, 1, {});
  CHECK(agreed_timeline(schedule, priced(schedule, 3, 6, 2, 2)).makespan == Time{14 + 4 * 6 + 2});
}

// Given away behind its forward, the last unit is gathered again before the first backward can begin. Two micro-batches: so is
// the first unit behind its backward.
TEST_CASE("Backward with every unit gathered again: 2 + 4 * 6 + 2") {
  const Schedule schedule = sharded(4, 1, {.always = true});
  CHECK(gathers(schedule) == Names{"0AG0.0", "1AG0.0", "2AG0.0", "3AG0.0", "3AG0.1", "2AG0.1", "1AG0.1", "0AG0.1"});
  const Timeline timeline = agreed_timeline(schedule, priced(schedule, 3, 6, 2, 2));
  CHECK(timeline.makespan == Time{14 + 2 + 4 * 6 + 2});
  CHECK(timeline.workers[0].communication[kGathers][4] == Span{Time{14}, Time{16}});
  const Schedule twice = sharded(4, 2, {.always = true});
  REQUIRE(std::ssize(gathers(twice)) == 16);
  CHECK(std::ssize(gathers(sharded(4, 2, {}))) == 13);
  CHECK(agreed_timeline(twice, priced(twice, 3, 6, 2, 2)).makespan == Time{2 * (14 + 2 + 4 * 6) + 2});
}

// The last unit's reduction takes as long as the rest of the step: in one queue the first unit would wait for it.
TEST_CASE("A gather does not queue behind a reduction") {
  const Schedule schedule = sharded(3, 1, {});
  const Timeline timeline = agreed_timeline(schedule, priced(schedule, 4, 4, 4, 100));
  const auto& gathered = timeline.workers[0].communication[kGathers];
  const auto& reduced = timeline.workers[0].communication[kReductions];
  REQUIRE(gathered.size() == 5);
  CHECK(gathered[4].start >= reduced[0].start);
  CHECK(gathered[4].end < reduced[0].end);
}

// Two stages of two chunks, forwards of 3, gathers of 2; messages of copy 1 take 10. The second chunk of stage 1 is
// gathered from when both copies have begun the op before.
TEST_CASE("A gather begins when the last copy is there, and holds up both") {
  const ScheduleShape shape{.stages = 2, .virtual_stages = 2, .micro_batches = 2, .data_parallel = 2};
  Schedule schedule = find_schedule("interleaved_1f1b")->generate(shape);
  gather_weights(schedule, {});
  REQUIRE(validate(schedule) == "");
  StepCosts costs = priced(schedule, 3, 6, 2, 2);
  for (std::size_t edge = 0; edge < costs.edges.size(); ++edge)
    for (const Direction direction : {Direction::Forward, Direction::Backward})
      for (auto* table : {&costs.messages, &costs.messages_last})
        (*table)[costs.first_message[2 * edge + static_cast<std::size_t>(direction)] + 1].latency = Time{10};  // copy 1
  const Timeline timeline = agreed_timeline(schedule, costs);
  const LaneTimes &quick = timeline.workers[1], &slow = timeline.workers[3];
  CHECK(quick.communication[kGathers] == slow.communication[kGathers]);
  CHECK(quick.compute[0].start == Time{5});  // F of chunk 1 in copy 0: stage 0's gather and forward
  CHECK(slow.compute[0].start == Time{15});  // and 10 on the way
  CHECK(slow.compute[1].start == Time{18});
  CHECK(quick.compute[1].start == Time{8});
  // Chunk 3 is gathered from when the second forward of chunk 1 begins in copy 1, too.
  REQUIRE(label(schedule.positions[1].communication[kGathers][1]) == "3AG0.0");
  CHECK(quick.communication[kGathers][1] == Span{Time{18}, Time{20}});
}

TEST_CASE("What cannot gather says why") {
  ScheduleShape shape{.stages = 2, .micro_batches = 4, .replicas = {2, 1}};
  CHECK(gathering_refusal(find_schedule("1f1b")->generate(shape)).find("different micro-batches") != std::string::npos);
  shape = {.stages = 2, .micro_batches = 4};
  CHECK(gathering_refusal(find_schedule("1f1b")->generate(shape)).find("one copy") != std::string::npos);
  shape.data_parallel = 2;
  CHECK(gathering_refusal(find_schedule("pipedream")->generate(shape)).find("updates the weights") !=
        std::string::npos);
  CHECK(gathering_refusal(find_schedule("1f1b")->generate(shape)).empty());
}

TEST_CASE("Gathers in another order than the ops that need them, of no op, or without partners are named") {
  const Schedule good = sharded(3, 1, {});
  const auto fault = [&](const auto& change) {
    Schedule schedule = good;
    change(schedule, schedule.positions[0].communication[kGathers]);
    return validate(schedule);
  };
  CHECK(fault([](auto&, auto& ops) { std::swap(ops[0], ops[1]); }).find("0AG0.0 stands in the list twice, or behind") !=
        std::string::npos);
  CHECK(fault([](auto&, auto& ops) { ops.push_back(ops.back()); }).find("0AG0.1 stands in the list twice") !=
        std::string::npos);
  CHECK(fault([](auto&, auto& ops) { ops[1].bucket = 2; }).find("1AG0.2 is for a pass that does not exist") !=
        std::string::npos);
  CHECK(fault([](auto&, auto& ops) { ops[1].micro_batch = 7; }).find("1AG7.0 is needed by no op of its worker") !=
        std::string::npos);
  CHECK(fault([](auto&, auto& ops) { ops[1].virtual_stage = 9; }).find("not on its worker") != std::string::npos);
  CHECK(fault([](auto&, auto& ops) { ops[1].kind = Kind::AllReduce; }).find("not an op of the weights' stream") !=
        std::string::npos);
  CHECK(fault([](auto& schedule, auto&) {
          schedule.shape.data_parallel = 1;
          schedule.positions[0].communication[kReductions].clear();
        }).find("no other worker to gather from") != std::string::npos);
}

TEST_CASE("A timeline whose gathers come too early, or whose ops do not wait for them, is refused") {
  const Schedule schedule = sharded(3, 1, {});
  const StepCosts costs = priced(schedule, 3, 6, 5, 2);
  const Timeline good = agreed_timeline(schedule, costs);
  const auto fault = [&](const auto& change) {
    Timeline timeline = good;
    for (LaneTimes& worker : timeline.workers)
      change(worker);
    return validate(timeline, schedule, costs);
  };
  CHECK(fault([](LaneTimes& worker) {
          for (Span& span : worker.communication[kGathers])
            span.start += Time{1};
        }).find("faster than priced") != std::string::npos);
  CHECK(fault([](LaneTimes& worker) { worker.communication[kGathers][0].end += Time{1}; }) != "");
  CHECK(fault([](LaneTimes& worker) { worker.communication[kGathers].pop_back(); }).find("ops of weights") !=
        std::string::npos);
}
