// A row of kStreamEdges each: what it says of a small list, and that every kind of communication has one.
#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "sim/schedules/table.hpp"
#include "sim/stream_edges.hpp"

using namespace pipewright::tests;

namespace {

Schedule linked(const char* name, ScheduleShape shape) {
  const ScheduleRule* rule = find_schedule(name);
  shape.chunk_order = rule->chunk_order;
  REQUIRE(rule->refusal(shape) == "");
  Schedule schedule = rule->generate(shape);
  REQUIRE(validate(schedule) == "");
  return schedule;
}

// "0B1 part: 0AR0.0; 0U0 waits: 0AR0.0; 0STORE0 after 0AR0.0": what begins with a compute op, what it waits for, and what an
// op of a stream follows, in the order of the lists.
std::string joins(const Schedule& schedule, StreamId stream, int position = 0) {
  const StreamLinks links = stream_links(schedule, PositionId{position});
  const Lane& lane = schedule.positions[PositionId{position}];
  const std::vector<Op>& ops = lane.communication[stream];
  std::vector<std::string> all;
  for (const StreamLinks::Trigger& one : links.triggers)
    if (one.stream == stream) {
      const char* from = one.from == StreamLinks::From::Start ? " start: "
                         : one.from == StreamLinks::From::End ? " end: "
                                                              : " part: ";
      all.push_back(label(lane.compute[one.op]) + from + label(ops[one.communication]));
    }
  for (const StreamLinks::Gate& one : links.gates)
    if (one.stream == stream) all.push_back(label(lane.compute[one.op]) + " waits: " + label(ops[one.count - 1]));
  for (std::size_t i = 0; i < ops.size(); ++i)
    links.for_each_after(stream, i, [&](const StreamLinks::After& after) {
      all.push_back(label(ops[i]) + " after " + label(lane.communication[after.stream][after.count - 1]));
    });
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (links.waits[stream][i] == 0) all.push_back(label(ops[i]) + " at once");
  std::string text;
  for (const std::string& one : all)
    text += (text.empty() ? "" : "; ") + one;
  return text;
}

}  // namespace

TEST_CASE("every kind of communication has a row, those of a stream together, the last of a kind for all of its ops") {
  for (int kind = 0; kind < kKinds; ++kind) {
    const auto of_kind = [&](const StreamEdge& row) { return row.kind == static_cast<Kind>(kind); };
    CAPTURE(kKindRules[at(kind)].name);
    const bool some = std::ranges::any_of(kStreamEdges, of_kind);
    CHECK(some == (kKindRules[at(kind)].stream != kCompute));
    if (!some) continue;
    const auto last = std::find_if(std::rbegin(kStreamEdges), std::rend(kStreamEdges), of_kind);
    CHECK(last->bits == 0);
  }
  std::vector<StreamId> streams;
  for (const StreamEdge& row : kStreamEdges)
    if (streams.empty() || streams.back() != rule(row.kind).stream) streams.push_back(rule(row.kind).stream);
  std::ranges::sort(streams);
  CHECK(std::ranges::adjacent_find(streams) == streams.end());
}

TEST_CASE("an all-reduce begins in the backward that completes its round, and the update waits for the last bucket") {
  const Schedule schedule =
      linked("1f1b", {.stages = 1, .micro_batches = 2, .data_parallel = 2, .buckets = {2}});  // F0 B0 F1 B1 U0
  CHECK(joins(schedule, kReductions) == "0B1 part: 0AR0.0; 0B1 part: 0AR0.1; 0U0 waits: 0AR0.1");
}

// F0 1F0 F1 1F1, then backwards of the units in turn: a round of reductions for each micro-batch, one update a chunk.
TEST_CASE("reduced after each micro-batch: an update waits for the last round of its chunk") {
  const Schedule schedule =
      linked("gpipe", {.stages = 1, .micro_batches = 2, .data_parallel = 2, .units = 2, .reduce_each = true});
  CHECK(joins(schedule, kReductions) ==
        "1B1 part: 1AR1.0; 0B1 part: 0AR1.0; 1B0 part: 1AR0.0; 0B0 part: 0AR0.0; 1U0 waits: 1AR0.0; 0U0 waits: 0AR0.0");
}

// F0 B0 F1 B1 U0 F2 B2 U1 U2
TEST_CASE("without a flush: a round an update, and gathers behind one and before the next") {
  const Schedule schedule =
      linked("pipedream", {.stages = 1, .micro_batches = 3, .data_parallel = 2, .updated = UpdatedParts::BehindUpdate});
  CHECK(
      joins(schedule, kReductions) ==
      "0B0 part: 0AR0.0; 0B1 part: 0AR1.0; 0B2 part: 0AR2.0; 0U0 waits: 0AR0.0; 0U1 waits: 0AR1.0; 0U2 waits: 0AR2.0");
  CHECK(joins(schedule, kGathers) == "0U0 end: 0AG0; 0U1 end: 0AG1; 0U2 end: 0AG2; 0U1 waits: 0AG0; 0U2 waits: 0AG1");
}

// 0F0 1F0 1B0 0B0 1U0 0U0, here and in the next one
TEST_CASE("gathers beside forwards: half before the forward, half before the op behind it") {
  const Schedule schedule = linked(
      "gpipe",
      {.stages = 1, .micro_batches = 1, .data_parallel = 2, .units = 2, .updated = UpdatedParts::BesideForwards});
  CHECK(joins(schedule, kGathers) ==
        "0F0 waits: 0AG0; 1F0 waits: 0AG0+; 1F0 waits: 1AG0; 1B0 waits: 1AG0+; "
        "0AG0 at once; 0AG0+ at once; 1AG0 at once; 1AG0+ at once");
}

TEST_CASE("a gather begins one op ahead of its reader, which waits for it; behind one that gives the weights away") {
  const Schedule units =
      linked("gpipe", {.stages = 1, .micro_batches = 1, .data_parallel = 2, .units = 2, .resharding = Resharding{}});
  CHECK(
      joins(units, kGathers) ==
      "0F0 start: 1AG0.0; 1B0 start: 0AG0.1; 0F0 waits: 0AG0.0; 1F0 waits: 1AG0.0; 0B0 waits: 0AG0.1; 0AG0.0 at once");
  const Schedule always =
      linked("gpipe", {.stages = 1, .micro_batches = 1, .data_parallel = 2, .resharding = Resharding{.always = true}});
  CHECK(joins(always, kGathers) == "0F0 end: 0AG0.1; 0F0 waits: 0AG0.0; 0B0 waits: 0AG0.1; 0AG0.0 at once");
}

// 0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1 2U0 0U0. Table 0 is that of chunks 0 and 2, table 1 here that of chunk 2 alone.
TEST_CASE(
    "a table is summed behind all gradients of its chunks here and their all-reduces, before their first update") {
  const Schedule schedule =
      linked("interleaved_1f1b",
             {.stages = 2, .virtual_stages = 2, .micro_batches = 2, .data_parallel = 2, .tied = {{0, 2}, {1, 2}}});
  CHECK(joins(schedule, kTables) ==
        "2B1 end: 2TR0.1; 0B1 end: 0TR0; 2U0 waits: 0TR0; 2U0 waits: 2TR0.1; 0TR0 after 0AR0.0; 2TR0.1 after 2AR0.0");
}

TEST_CASE("the norm is summed behind all gradients here and all their sums, before the first update") {
  const Schedule schedule = linked("interleaved_1f1b", {.stages = 2,
                                                        .virtual_stages = 2,
                                                        .micro_batches = 2,
                                                        .data_parallel = 2,
                                                        .tied = {{0, 2}, {1, 2}},
                                                        .norm = true});
  CHECK(joins(schedule, kNorm) == "0B1 end: 0NR0; 2U0 waits: 0NR0; 0NR0 after 0AR0.0; 0NR0 after 2TR0.1");
}

// 0F0 0F1 0F2 0F3 0B3 ...: that of F3 stays, as B3 reads it at once. One may leave under a forward.
TEST_CASE("offloads go behind their forward, one beside the next, and come back one op ahead of their reader") {
  const Schedule schedule = linked("gpipe", {.stages = 1, .micro_batches = 4, .offloaded = {true}});
  CHECK(joins(schedule, kOut) ==
        "0F0 end: 0OFFLOAD0; 0F1 end: 0OFFLOAD1; 0F2 end: 0OFFLOAD2; 0F2 waits: 0OFFLOAD0; 0F3 waits: 0OFFLOAD1");
  CHECK(joins(schedule, kIn) ==
        "0B3 start: 0RELOAD2; 0B2 start: 0RELOAD1; 0B1 start: 0RELOAD0; "
        "0B2 waits: 0RELOAD2; 0B1 waits: 0RELOAD1; 0B0 waits: 0RELOAD0; "
        "0RELOAD2 after 0OFFLOAD2; 0RELOAD1 after 0OFFLOAD1; 0RELOAD0 after 0OFFLOAD0");
}

// 0F0 0F1 0F2 0F3 0B0 0F4 0B1 0B2 0B3 0B4 0U0: F3 takes the room of 2, so it waits, and 2 comes into that of 4.
TEST_CASE("to a partner none leaves beside a forward, and one that comes back waits for all that have left before") {
  const Schedule schedule = linked("bpipe", {.stages = 4, .micro_batches = 5, .most_in_flight = 3});
  CHECK(joins(schedule, kOut) == "0F2 end: 0OFFLOAD2; 0F4 end: 0OFFLOAD4; 0F3 waits: 0OFFLOAD2");
  CHECK(joins(schedule, kIn) ==
        "0B1 start: 0RELOAD2; 0B3 start: 0RELOAD4; 0B2 waits: 0RELOAD2; 0B4 waits: 0RELOAD4; "
        "0RELOAD2 after 0OFFLOAD4; 0RELOAD4 after 0OFFLOAD4");
}

// 0F0 1F0 0F1 1F1 1B1 0B1 1B0 0B0 1U0 0U0: gradients of micro-batch 1 come first, to which the host adds those of 0.
TEST_CASE("shards come two ops ahead, before their gather, and go when they are reduced, before the first update") {
  const Schedule schedule = linked("gpipe", {.stages = 1,
                                             .micro_batches = 2,
                                             .data_parallel = 2,
                                             .units = 2,
                                             .resharding = Resharding{.from_host = true},
                                             .reduce_each = true});
  CHECK(joins(schedule, kIn) ==
        "0F0 start: 0FETCH1.0; 1F0 start: 1FETCH1.0; 1F1 start: 0FETCH1.1; 1B1 start: 1FETCH0.1; 0B1 start: 0FETCH0.1; "
        "0FETCH0.0 at once; 1FETCH0.0 at once");
  CHECK(joins(schedule, kOut) ==
        "0B0 waits: 1STORE0; 1U0 waits: 0STORE0; 1U0 waits: 0STORE0; "
        "1STORE1 after 1AR1.0; 0STORE1 after 0AR1.0; 1STORE0 after 1AR0.0; 0STORE0 after 0AR0.0; "
        "1STORE1 at once; 0STORE1 at once; 1STORE0 at once; 0STORE0 at once");
}

// The backward of unit 0 finds a shard of two members here.
TEST_CASE("a gather from few members follows the copy that the one before it does; updates wait for the last shard") {
  const Schedule schedule = linked("gpipe", {.stages = 1,
                                             .micro_batches = 1,
                                             .data_parallel = 4,
                                             .units = 2,
                                             .resharding = Resharding{.over = 2, .from_host = true}});
  CHECK(joins(schedule, kGathers) ==
        "0F0 start: 1AG0.0; 1B0 start: 0AG0.3; 0F0 waits: 0AG0.0; 1F0 waits: 1AG0.0; 0B0 waits: 0AG0.3; "
        "0AG0.0 after 0FETCH0.0; 1AG0.0 after 1FETCH0.0; 0AG0.3 after 1FETCH0.0; 0AG0.0 at once");
  CHECK(joins(schedule, kOut) ==
        "1U0 waits: 0STORE0; 1STORE0 after 1AR0.0; 0STORE0 after 0AR0.0; 1STORE0 at once; 0STORE0 at once");
}
