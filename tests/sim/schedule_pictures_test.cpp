// Every schedule drawn. The pictures were made by hand from the definition of the schedule; DualPipe's on four stages,
// V-Half's, V-Min's, V-1F1B's and those made for times from the orders of their authors, V-ZB's and doubled Chimera's from what is generated: a forward takes 1, a backward 2, a recomputation 1,
// messages are free, unless a test says otherwise.
#include <memory>

#include <doctest/doctest.h>

#include "core/plan/given_schedule.hpp"
#include "sim/schedules/made_order.hpp"
#include "sim/schedules/table.hpp"
#include "sim/simulate.hpp"
#include "sim/static_order.hpp"
#include "tests/support/pictures.hpp"

namespace pipewright::tests {
namespace {

StepCosts unit_costs(const ScheduleShape& shape) {
  const auto chunks = static_cast<std::size_t>(shape.chunks());
  return plain_costs(shape, std::vector<Time>(chunks, Time{1}), std::vector<Time>(chunks, Time{2}), Time{0});
}

void set_update_time(StepCosts& costs, int v, Time time) {
  for (auto* table : {&costs.duration, &costs.duration_last})
    (*table)[static_cast<std::size_t>(v) * kKinds + static_cast<std::size_t>(Kind::Update)] = time;
}

// One all-reduce bucket per entry of `times`; each is ready `ready_before_end` before the last backward ends.
void set_all_reduce(StepCosts& costs, int v, const std::vector<Time>& times,
                    const std::vector<Time>& ready_before_end) {
  const auto chunks = static_cast<std::size_t>(costs.shape.chunks());
  costs.collectives.resize(chunks), costs.ready_before_end.resize(chunks);
  auto& collectives = costs.collectives[static_cast<std::size_t>(v)];
  collectives.assign(times.size(), {});
  for (std::size_t bucket = 0; bucket < times.size(); ++bucket)
    collectives[bucket].time = times[bucket];
  costs.ready_before_end[static_cast<std::size_t>(v)] = ready_before_end;
}

std::string drawn(const char* name, const ScheduleShape& shape, const StepCosts& costs) {
  const Schedule schedule = find_schedule(name)->generate(shape);
  REQUIRE(validate(schedule) == "");
  const Timeline timeline = static_order(schedule, costs);
  CHECK(validate(timeline, schedule, costs) == "");
  return picture(schedule, timeline, Time{1});
}

std::string drawn(const char* name, const ScheduleShape& shape) {
  return drawn(name, shape, unit_costs(shape));
}

}  // namespace

TEST_CASE("naive model parallelism has one micro-batch in the pipeline at a time") {
  CHECK(drawn("naive", {.stages = 3, .micro_batches = 2}) == R"(
0......aa1......bb
.0...aa...1...bb..
..0aa......1bb....
)");
}

TEST_CASE("GPipe runs all forwards, then all backwards in reverse") {
  CHECK(drawn("gpipe", {.stages = 3, .micro_batches = 4}) == R"(
0123......ddccbbaa
.0123...ddccbbaa..
..0123ddccbbaa....
)");
}

TEST_CASE("GPipe recomputes early: the first recomputation of a stage runs while the gradient is on its way") {
  CHECK(drawn("gpipe", {.stages = 2, .micro_batches = 3, .recompute = {true, true}}) == R"(
012C...ccBbbAaa
.012CccBbbAaa..
)");
}

TEST_CASE("except the last micro-batch, whose activations are still there: one recomputation less") {
  CHECK(drawn("gpipe", {.stages = 2, .micro_batches = 3, .recompute = {true, true}, .recompute_except_last = true}) ==
        R"(
012...ccBbbAaa
.012ccBbbAaa..
)");
}

TEST_CASE("only the stages that ask for it recompute") {
  // Stage 1 keeps its activations: its backwards follow one another, stage 0 fits its recomputations before them.
  //   stage 1: F 1-4, BW2 4-6, BW1 6-8, BW0 8-10;  stage 0: R2 3-4, BW2 6-8, R1 8-9, BW1 9-11, R0 11-12, BW0 12-14
  CHECK(drawn("gpipe", {.stages = 2, .micro_batches = 3, .recompute = {true, false}}) == R"(
012C..ccBbbAaa
.012ccbbaa....
)");
}

TEST_CASE("GPipe over replicas deals the micro-batches out in turn") {
  // Stage 0 has two replicas, each half as fast: forward 2, backward 4.
  const ScheduleShape shape{.stages = 2, .micro_batches = 4, .replicas = {2, 1}};
  StepCosts costs = plain_costs(shape, {{2}, {1}}, {{4}, {2}}, Time{0});
  set_all_reduce(costs, 0, {{0}}, {{0}});
  CHECK(drawn("gpipe", shape, costs) == R"(
0022......ccccaaaa
1133....ddddbbbb..
..0123ddccbbaa....
)");
}

TEST_CASE("1F1B takes a backward as soon as there is one") {
  CHECK(drawn("1f1b", {.stages = 3, .micro_batches = 4}) == R"(
012....aa3bb.cc.dd
.01..aa2bb3cc.dd..
..0aa1bb2cc3dd....
)");
}

TEST_CASE("1F1B with recomputation: the last stage pays for all of it, stage 0 hides it in its gaps") {
  CHECK(drawn("1f1b", {.stages = 2, .micro_batches = 3, .recompute = {true, true}}) == R"(
01A..aa2BbbC.cc
.0Aaa1Bbb2Ccc..
)");
}

TEST_CASE("1F1B with fewer micro-batches than stages ends its warm-up early") {
  // M = 2 under K = 4: no worker has a steady state.
  CHECK(drawn("1f1b", {.stages = 4, .micro_batches = 2}) == R"(
01........aa.bb
.01.....aa.bb..
..01..aa.bb....
...0aa1bb......
)");
}

TEST_CASE("eager 1F1B warms up with 2(K-1-k) forwards: 4, 2 and none for three stages") {
  CHECK(drawn("eager_1f1b", {.stages = 3, .micro_batches = 5}) == R"(
01234..aa.bb.cc.dd.ee
.012.aa3bb4cc.dd.ee..
..0aa1bb2cc3dd4ee....
)");
}

TEST_CASE("ZB-H1 does the weights' gradients of stage k k backwards later, so that they fill the drain") {
  CHECK(drawn("zb_h1", {.stages = 3, .micro_batches = 4}) == R"(
012..aw3bwcwdw
.01.a2bw3cwdww
..0a1b2cw3dwww
)");
}

TEST_CASE("ZB-H2 warms up twice as deep and does the weights' gradients 2k later: no stage waits once it has begun") {
  CHECK(drawn("zb_h2", {.stages = 3, .micro_batches = 6}) == R"(
01234aw5bwcwdwewfw..
.012a3b4cw5dwewfwww.
..0a1b2c3d4ew5fwwwww
)");
}

TEST_CASE("ZB-V has the first and the last chunk on stage 0, and no stage waits once it has begun") {
  CHECK(drawn("zbv", {.stages = 2, .virtual_stages = 2, .micro_batches = 4, .chunk_order = ChunkOrder::V}) == R"(
0120aw1bw3aw2cwbw3dwcwdw.
.0011aw2aw2bw3bw3cwcddwww
)");
}

TEST_CASE(
    "V-Half and V-Min wait a little, and hold less: four and three chunks on stage 0; V-1F1B keeps backwards whole") {
  const ScheduleShape shape{.stages = 2, .virtual_stages = 2, .micro_batches = 4, .chunk_order = ChunkOrder::V};
  CHECK(drawn("v_half", shape) == R"(
0120aw1.abw2w3bcw3dcwdwww
.0011awaw22bbw3w3ccddwwww
)");
  CHECK(drawn("v_min", shape) == R"(
01.0aw.aw1bw2bw2cw3cw3dw.dw
.00..aa11wwbb22wwcc33wwddww
)");
  CHECK(drawn("v_1f1b", shape) == R"(
0120aa1bb3aa2cc.bb3dd.cc..dd
.0011.aaaa22bbbb33ccccdddd..
)");
}

TEST_CASE(
    "orders made for times and room: ZB-2p's spans have no idle time; ZB-V's Ws fill gaps of half an F; adaptive V") {
  const auto made = [](const char* name, int stages, int micro_batches, int room, Time pass, Time weights) {
    const ScheduleRule& rule = *find_schedule(name);
    ScheduleShape shape{.stages = stages,
                        .virtual_stages = rule.chunks == 2 ? 2 : 1,
                        .micro_batches = micro_batches,
                        .chunk_order = rule.chunk_order};
    const auto alike = [&](std::int64_t value) {
      return std::vector<std::int64_t>(static_cast<std::size_t>(shape.chunks()), value);
    };
    const ZeroBubbleTimes times{.forward = alike(pass.value),
                                .input = alike(pass.value),
                                .weights = alike(weights.value),
                                .held = alike(1),
                                .kept_after_input = alike(1),
                                .cap = std::vector<std::int64_t>(static_cast<std::size_t>(stages), room),
                                .hop = 0};
    auto order = std::make_shared<GivenSchedule>();
    order->stages = stages, order->virtual_stages = shape.virtual_stages, order->micro_batches = micro_batches;
    order->chunk_order = rule.chunk_order, order->compute = rule.made_for(one_hop_problem(shape, times));
    shape.given = order;
    const auto chunks = static_cast<std::size_t>(shape.chunks());
    StepCosts costs =
        plain_costs(shape, std::vector<Time>(chunks, pass), std::vector<Time>(chunks, pass + weights), Time{0});
    for (auto* const durations : {&costs.duration, &costs.duration_last})
      for (std::size_t v = 0; v < chunks; ++v) {
        (*durations)[v * kKinds + static_cast<std::size_t>(Kind::B)] = pass;
        (*durations)[v * kKinds + static_cast<std::size_t>(Kind::W)] = weights;
      }
    return drawn(name, shape, costs);
  };
  CHECK(made("zb_auto", 3, 6, 6, Time{1}, Time{1}) == R"(
01234a5wbwcwdwewfw..
.012a3b4c5dwewfwwww.
..0a1b2c3d4e5fwwwwww
)");
  CHECK(made("zbv_auto", 2, 4, 4, Time{2}, Time{1}) == R"(
00112200aaw11bbw33aaw22ccw.bbw33ddccwwddw.
..00001111aaw22aaw22bbw33bbw33ccccddddwwww
)");
  CHECK(made("v_auto", 3, 6, 5, Time{1}, Time{1}) == R"(
0123.0aw1bw.aw2cw4bw3dw5cw4ew.5fdwewfww
.0120.1aw3baw2w.cbw34wdcw45we5dwfewfwww
..00112.awab2ww3bc3ww4cd4ww55deewffwwww
)");
}

TEST_CASE("DualPipe sends micro-batches 0 to 3 down from stage 0 and 4 to 7 up from stage 3") {
  CHECK(drawn("dualpipe", {.stages = 4, .micro_batches = 8, .chunk_order = ChunkOrder::BothWays}) == R"(
0124ew53ff6aagg7.bbhhcwdw
.04152ee6aa3ff7bbggcchdww
.40516aa2ee7bb3ffccggdhww
4560aw17bb2eecc3.ffddgwhw
)");
  CHECK(drawn("dualpipe", {.stages = 2, .micro_batches = 4, .chunk_order = ChunkOrder::BothWays}) == R"(
021cc3aaddbw
203aa1ccbbdw
)");
}

TEST_CASE("Chimera sends two micro-batches down, two up, and so on") {
  CHECK(drawn("chimera", {.stages = 4, .micro_batches = 4, .chunk_order = ChunkOrder::InTurns}) == R"(
01.2cc3dd.aa..bb
.0213.ccaaddbb..
.2031.aaccbbdd..
23.0aa1bb.cc..dd
)");
}

TEST_CASE("V-ZB has no bubble within a stage's span") {
  CHECK(drawn("v_zb", {.stages = 2, .virtual_stages = 2, .micro_batches = 5, .chunk_order = ChunkOrder::V}) == R"(
0120aw1baww32cbww43dcww4edweww.
.0011aaww22bbww33ccw4w4ddeewwww
)");
}

TEST_CASE("Hanayo goes there and back in one wave, and twice in two") {
  CHECK(drawn("hanayo", {.stages = 2, .virtual_stages = 2, .micro_batches = 2, .chunk_order = ChunkOrder::V}) == R"(
01.0aa1bb.aa..bb
.0011.aaaabbbb..
)");
  CHECK(drawn("hanayo", {.stages = 2, .virtual_stages = 4, .micro_batches = 2, .chunk_order = ChunkOrder::V}) == R"(
01.00110aa1bb.aaaabbbbaa..bb
.00110011.aaaabbbbaaaabbbb..
)");
}

TEST_CASE("Seq1F1B: slices 0 and 1 are of one micro-batch, 2 and 3 of the next; backwards take the later slice first") {
  CHECK(drawn("seq1f1b", {.stages = 2, .micro_batches = 4, .slices = 2}) == R"(
012..bb3aa.ddcc
.01bb2aa3ddcc..
)");
}

TEST_CASE("GEMS sends a micro-batch down and the next one up, behind its gradient") {
  CHECK(drawn("gems", {.stages = 4, .micro_batches = 2, .chunk_order = ChunkOrder::Alternate}) == R"(
0.........aa1bb......
.0......aa1....bb....
..0...aa1........bb..
...0aa1............bb
)");
}

TEST_CASE("Chimera with four pipelines of a micro-batch each, and with forward doubling") {
  CHECK(drawn("chimera", {.stages = 4, .micro_batches = 4, .pipelines = 4, .chunk_order = ChunkOrder::InTurns}) == R"(
0312ccbbddaa
3021bbccaadd
1203ddaaccbb
2130aaddbbcc
)");
  CHECK(drawn("chimera", {.stages = 4, .micro_batches = 8, .forwards = 2, .chunk_order = ChunkOrder::InTurns}) == R"(
041526cc37dd.aaggbbhhee..ff
.04261537ccaaddbbggeehhff..
.26043715aaccbbddeeggffhh..
263704aa15bb.cceeddffgg..hh
)");
}

TEST_CASE("PipeDream-2BW updates (U) every three micro-batches, and never waits for it") {
  const ScheduleShape shape{.stages = 2, .micro_batches = 6, .update_every = 3};
  StepCosts costs = unit_costs(shape);
  for (const int v : {0, 1})
    set_update_time(costs, v, Time{1});
  CHECK(drawn("pipedream_2bw", shape, costs) == R"(
01..aa2bb3ccu4dd5ee.ffu
.0aa1bb2ccu3dd4ee5ffu..
)");
}

TEST_CASE("interleaved 1F1B with pairs is one forward ahead of interleaved 1F1B") {
  CHECK(drawn("moe_overlap_1f1b", {.stages = 1, .micro_batches = 3}) == R"(
01aa2bbcc
)");
  CHECK(drawn("moe_overlap_1f1b", {.stages = 2, .virtual_stages = 2, .micro_batches = 4}) == R"(
010123.aa2bb3aa.bb.ccddccdd
.0101aa2bb3aa2bb3ccddccdd..
)");
}

TEST_CASE("interleaved 1F1B in groups of four takes all four micro-batches through a chunk before the next") {
  CHECK(drawn("interleaved_1f1b", {.stages = 2, .virtual_stages = 2, .micro_batches = 4, .group = 4}) == R"(
0123012.aa3bb.cc.ddaabbccdd
.01230aa1bb2cc3ddaabbccdd..
)");
}

TEST_CASE("interleaved 1F1B takes two micro-batches through each of the two chunks of two stages") {
  CHECK(drawn("interleaved_1f1b", {.stages = 2, .virtual_stages = 2, .micro_batches = 4}) == R"(
01012.aa3bb2aa3bb.cc.ddccdd
.010aa1bb2aa3bb2cc3ddccdd..
)");
}

TEST_CASE("interleaved zero bubble fills the drain with the weights' gradients of both chunks") {
  CHECK(drawn("interleaved_zb", {.stages = 2, .virtual_stages = 2, .micro_batches = 4}) == R"(
0101.aw2bw3aw2bw3cwdwcwdw
.010a1bw2aw3bw2cw3dwcwdww
)");
}

TEST_CASE("Looped BFS takes all three micro-batches through one chunk, then through the next; backwards undo that") {
  CHECK(drawn("looped_bfs", {.stages = 2, .virtual_stages = 2, .micro_batches = 3}) == R"(
012012...ccbbaaccbbaa
.012012ccbbaaccbbaa..
)");
}

TEST_CASE("PipeDream updates after each backward and never flushes") {
  const ScheduleShape shape{.stages = 2, .micro_batches = 3};
  StepCosts costs = unit_costs(shape);
  set_update_time(costs, 0, Time{1}), set_update_time(costs, 1, Time{1});
  CHECK(drawn("pipedream", shape, costs) == R"(
01..aau2bbu.ccu
.0aau1bbu2ccu..
)");
}

TEST_CASE("PipeDream 2-1, overlapped: forwards and the next backward run while the gradients of a round travel") {
  // Two replicas of stage 0: forward 2, backward 4, update 1, all-reduce 5. Rounds are complete at 12, 18 and 24, so
  // they travel 12-17, 18-23, 24-29; the updates follow the next backward and these.
  const ScheduleShape shape{.stages = 2, .micro_batches = 6, .replicas = {2, 1}};
  StepCosts costs = plain_costs(shape, {{2}, {1}}, {{4}, {2}}, Time{0});
  set_update_time(costs, 0, Time{1});
  set_all_reduce(costs, 0, {{5}}, {{0}});
  CHECK(drawn("pipedream", shape, costs) == R"(
0022.aaaa44cccc..ueeee.u.....u
1133....bbbb55ddddu.ffffu....u
..0aa1bb2cc3dd4ee5ff..........
)");
}

TEST_CASE("PipeDream 2-1, blocking: each update waits for its round before the next op") {
  const ScheduleShape shape{.stages = 2, .micro_batches = 6, .replicas = {2, 1}, .blocking_sync = true};
  StepCosts costs = plain_costs(shape, {{2}, {1}}, {{4}, {2}}, Time{0});
  set_update_time(costs, 0, Time{1});
  set_all_reduce(costs, 0, {{5}}, {{0}});
  CHECK(drawn("pipedream", shape, costs) == R"(
0022.aaaa........u44cccc.....ueeee.....u
1133....bbbb.....u55dddd.....uffff.....u
..0aa1bb2cc3dd......4ee5ff..............
)");
}

TEST_CASE("PipeDream 2-1, at once: a round's gradients travel beside its own backward, the update waits for the rest") {
  // Two replicas of stage 0: forward 2, backward 4, update 1; two buckets of 2, the first complete 3 before the
  // backward ends. Backwards a and b end at 9 and 12, so the buckets are complete at 9 and 12 and travel 9-11 and
  // 12-14; then the update, 14-15. Rounds 1 and 2: backwards end at 21 and 28, buckets 18-20, 21-23 and 25-27, 28-30.
  const ScheduleShape shape{
      .stages = 2, .micro_batches = 6, .replicas = {2, 1}, .buckets = {2, 1}, .blocking_sync = true};
  StepCosts costs = plain_costs(shape, {{2}, {1}}, {{4}, {2}}, Time{0});
  set_update_time(costs, 0, Time{1});
  set_all_reduce(costs, 0, {{2}, {2}}, {{3}, {0}});
  CHECK(drawn("pipedream", shape, costs) == R"(
0022.aaaa.....u44cccc..ueeee..u
1133....bbbb..u55dddd..uffff..u
..0aa1bb2cc3dd...4ee5ff........
)");
}

TEST_CASE("data parallelism sends its first bucket while the last backward still runs") {
  // The last backward ends at 6. Bucket 0 is complete 1 before that and travels 5-7, bucket 1 follows 7-9.
  const ScheduleShape shape{.stages = 1, .micro_batches = 2, .data_parallel = 2, .buckets = {2}};
  StepCosts costs = unit_costs(shape);
  set_update_time(costs, 0, Time{1});
  set_all_reduce(costs, 0, {{2}, {2}}, {{1}, {0}});
  CHECK(drawn("data_parallel", shape, costs) == R"(
0aa1bb...u
0aa1bb...u
)");
  const Timeline timeline = static_order(find_schedule("data_parallel")->generate(shape), costs);
  CHECK(timeline.workers[1].communication[kReductions] == std::vector<Span>{{{5}, {7}}, {{7}, {9}}});
}

TEST_CASE("1F1B in two copies reduces the gradients of each stage after its last backward") {
  const ScheduleShape shape{.stages = 2, .micro_batches = 2, .data_parallel = 2};
  StepCosts costs = unit_costs(shape);
  for (const int v : {0, 1})
    set_update_time(costs, v, Time{1}), set_all_reduce(costs, v, {{1}}, {{0}});
  CHECK(drawn("1f1b", shape, costs) == R"(
01..aa.bb.u
.0aa1bb.u..
01..aa.bb.u
.0aa1bb.u..
)");
}

TEST_CASE("a backward may be split into the gradients of the input and of the weights") {
  // Stage 0 waits for the input gradient alone (1 of the 2); both weight gradients of stage 1 run behind it.
  Schedule schedule;
  schedule.shape = {.stages = 2, .micro_batches = 1};
  const auto op = [](Kind kind, int v) { return Op{kind, static_cast<std::uint16_t>(v), 0, 0}; };
  for (const int v : {0, 1})
    schedule.positions.push_back({.compute = {op(Kind::F, v), op(Kind::B, v), op(Kind::W, v), op(Kind::Update, v)}});
  REQUIRE(validate(schedule) == "");
  CHECK(picture(schedule, static_order(schedule, unit_costs(schedule.shape)), Time{1}) == R"(
0..aw
.0aw.
)");
}

}  // namespace pipewright::tests
