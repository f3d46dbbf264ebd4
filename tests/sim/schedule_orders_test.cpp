// Orders written out op by op where a picture would not show them: PipeDream's replicas, rounds and versions, the order
// of all-reduces, what a schedule refuses.
#include <doctest/doctest.h>

#include "sim/schedules/table.hpp"

namespace pipewright::tests {
namespace {

std::string labels(const std::vector<Op>& ops) {
  std::string text;
  for (const Op& op : ops)
    text += (text.empty() ? "" : " ") + label(op);
  return text;
}

std::string compute(const Schedule& schedule, PositionId position) {
  return labels(schedule.positions[position].compute);
}

std::string collective(const Schedule& schedule, PositionId position) {
  return labels(schedule.positions[position].communication[kReductions]);
}

Schedule generated(const char* name, const ScheduleShape& shape) {
  return find_schedule(name)->generate(shape);
}

}  // namespace

TEST_CASE("the table holds the schedules by the names of the YAML file, in its order") {
  CHECK(schedule_names() == std::vector<std::string_view>{"naive",
                                                          "gpipe",
                                                          "1f1b",
                                                          "eager_1f1b",
                                                          "bpipe",
                                                          "seq1f1b",
                                                          "interleaved_1f1b",
                                                          "moe_overlap_1f1b",
                                                          "looped_bfs",
                                                          "zb_h1",
                                                          "zb_h2",
                                                          "zb_auto",
                                                          "search",
                                                          "interleaved_zb",
                                                          "zbv",
                                                          "zbv_auto",
                                                          "v_half",
                                                          "v_min",
                                                          "v_zb",
                                                          "v_1f1b",
                                                          "v_auto",
                                                          "v_search",
                                                          "hanayo",
                                                          "gems",
                                                          "chimera",
                                                          "dualpipe",
                                                          "dualpipev",
                                                          "pipedream",
                                                          "pipedream_2bw",
                                                          "data_parallel"});
  CHECK(find_schedule("1f1b")->name == "1f1b");
  CHECK(find_schedule("1fb1") == nullptr);
  for (const ScheduleRule& rule : schedules())
    CHECK(rule.flush == !rule.name.starts_with("pipedream"));
}

TEST_CASE("the traits of every schedule are what its orders do") {
  for (const ScheduleRule& rule : schedules()) {
    CAPTURE(rule.name);
    const int v = rule.facts.takes_chunks ? 2 : 1;
    const bool two_ways = both_ways(rule.chunk_order);
    // Six stages: V-Half has a backward directly after its forward on an odd number, V-Min where 3 does not divide it.
    const int K = two_ways || rule.refusal({.stages = 2}).empty() || v > 1 ? 6 : 1;
    const auto shape = [&](int micro_batches) {
      return ScheduleShape{
          .stages = K, .virtual_stages = v, .micro_batches = micro_batches, .chunk_order = rule.chunk_order};
    };
    REQUIRE(rule.refusal(shape(36)) == "");
    ScheduleShape other_chunks = shape(36), other_order = shape(36);
    other_chunks.virtual_stages = 3 - v;
    other_order.chunk_order = rule.chunk_order == ChunkOrder::Loop ? ChunkOrder::V : ChunkOrder::Loop;
    const bool any_chunks = rule.finds_order && rule.chunks == 0;  // one of them, too
    CHECK(rule.refusal(other_chunks).empty() == any_chunks);
    CHECK(rule.refusal(other_order) != "");
    CHECK(rule.refusal(shape(37)).empty() ==
          !(rule.facts.groups_of_stages || rule.chunk_order == ChunkOrder::BothWays));
    CHECK((rule.peak_in_flight(shape(36), 0) == rule.peak_in_flight(shape(72), 0)) == rule.bounded_in_flight);
    bool at_once = true;
    for (const Lane& lane : rule.generate(shape(36)).positions)
      for (std::size_t i = 0; i + 1 < lane.compute.size(); ++i)
        if (const Op& op = lane.compute[i], &next = lane.compute[i + 1];
            op.kind == Kind::F && op.virtual_stage + 1 == K * v)
          at_once &= (next.kind == Kind::B || next.kind == Kind::BW) && next.virtual_stage == op.virtual_stage &&
                     next.micro_batch == op.micro_batch;
    CHECK(at_once == rule.facts.backward_at_once);
    for (const std::string_view other : {rule.on_one_stage, rule.leaner, rule.hides_hops})
      CHECK((other.empty() || find_schedule(other) != nullptr));
    if (!rule.leaner.empty())
      CHECK(*find_schedule(rule.leaner)->peak_in_flight(shape(36), 0) < *rule.peak_in_flight(shape(36), 0));
  }
  CHECK(searched_schedules(&ScheduleRule::searched) ==
        std::vector<std::string>{"1f1b", "gpipe", "eager_1f1b", "interleaved_1f1b"});
  CHECK(searched_schedules(&ScheduleRule::searched_with_replicas) == std::vector<std::string>{"pipedream", "1f1b"});
}

TEST_CASE("one micro-batch more is one block more, in the middle of every lane, where a block makes the order" *
          doctest::test_suite("all combinations")) {
  for (const char* name : {"v_half", "v_min", "v_zb", "v_1f1b", "v_auto"})
    for (int K = 1; K <= 16; ++K)
      for (int M = 3 * K + 1; M <= 4 * K + 4; ++M) {
        ScheduleShape shape{.stages = K, .virtual_stages = 2, .micro_batches = M, .chunk_order = ChunkOrder::V};
        const Schedule shorter = generated(name, shape);
        shape.micro_batches = M + 1;
        const Schedule longer = generated(name, shape);
        bool same = true;
        for (PositionId k = 0; k < std::ssize(shorter.positions); ++k) {
          std::vector<Op> ops = shorter.positions[k].compute;
          const auto block = std::ssize(longer.positions[k].compute) - std::ssize(ops), middle = block * (M / 2);
          const std::vector<Op> once(ops.begin() + middle, ops.begin() + middle + block);
          ops.insert(ops.begin() + middle, once.begin(), once.end());
          for (auto op = ops.begin() + middle + block; op != ops.end(); ++op)
            if (op->kind != Kind::Update) ++op->micro_batch;
          same &= ops == longer.positions[k].compute;
        }
        CAPTURE(name);
        CAPTURE(K);
        CAPTURE(M);
        CHECK(same);
      }
}

TEST_CASE("PipeDream 15-1: 2 micro-batches enter each input replica, ceil(16/15), and stage 1 holds one") {
  const Schedule schedule = generated("pipedream", {.stages = 2, .micro_batches = 45, .replicas = {15, 1}});
  // Replica j runs j, j + 15, j + 30. A round is complete in all replicas before its update, one backward later.
  CHECK(compute(schedule, 0) == "0F0 0F15 0B0 0F30 0B15 0U0 0B30 0U1 0U2");
  CHECK(compute(schedule, 14) == "0F14 0F29 0B14 0F44 0B29 0U0 0B44 0U1 0U2");
  CHECK(collective(schedule, 14) == "0AR0.0 0AR1.0 0AR2.0");
  CHECK(compute(schedule, 15).substr(0, 31) == "1F0 1B0 1U0 1F1 1B1 1U1 1F2 1B2");
  CHECK(collective(schedule, 15) == "");
  const auto peak = find_schedule("pipedream")->peak_in_flight;
  CHECK(peak(schedule.shape, 0) == 2);
  CHECK(peak(schedule.shape, 1) == 1);
}

TEST_CASE("PipeDream 2-1-1: ceil(4/2) = 2, then 2, then 1 in flight") {
  const ScheduleShape shape{.stages = 3, .micro_batches = 8, .replicas = {2, 1, 1}};
  const auto peak = find_schedule("pipedream")->peak_in_flight;
  CHECK(peak(shape, 0) == 2);
  CHECK(peak(shape, 1) == 2);
  CHECK(peak(shape, 2) == 1);
  const Schedule schedule = generated("pipedream", shape);
  CHECK(compute(schedule, 1) == "0F1 0F3 0B1 0F5 0B3 0U0 0F7 0B5 0U1 0B7 0U2 0U3");
  CHECK(compute(schedule, 2).substr(0, 27) == "1F0 1F1 1B0 1U0 1F2 1B1 1U1");
}

TEST_CASE("a replica without a micro-batch in the last round takes part in its all-reduce and update") {
  const Schedule schedule = generated("pipedream", {.stages = 1, .micro_batches = 3, .replicas = {2}});
  CHECK(compute(schedule, 0) == "0F0 0B0 0F2 0B2 0U0 0U1");
  CHECK(compute(schedule, 1) == "0F1 0B1 0U0 0U1");
  CHECK(collective(schedule, 1) == "0AR0.0 0AR1.0");
}

TEST_CASE("a straight PipeDream stage is K-k-1 updates late: that many lie between a forward and its backward") {
  // Weight versions in use at once: those, and the newest: K - k.
  for (int K = 1; K <= 16; ++K) {
    const int M = 3 * K;
    const Schedule schedule = generated("pipedream", {.stages = K, .micro_batches = M});
    for (int k = 0; k < K; ++k) {
      std::vector<int> version(static_cast<std::size_t>(M));  // that the forward of each micro-batch used
      int updates = 0;
      for (const Op& op : schedule.positions[k].compute) {
        if (op.kind == Kind::F) version[op.micro_batch] = updates;
        if (op.kind == Kind::BW) {
          CHECK(updates == static_cast<int>(op.micro_batch));
          CHECK(updates - version[op.micro_batch] == std::min(static_cast<int>(op.micro_batch), K - k - 1));
        }
        if (op.kind == Kind::Update) ++updates;
      }
    }
  }
}

TEST_CASE("vertical sync changes versions, not the order") {
  ScheduleShape shape{.stages = 3, .micro_batches = 6};
  const Schedule without = generated("pipedream", shape);
  shape.vertical_sync = true;
  const Schedule with = generated("pipedream", shape);
  for (PositionId position = 0; position < 3; ++position)
    CHECK(with.positions[position].compute == without.positions[position].compute);
}

TEST_CASE("at once and blocking, an update stands directly behind the backward of its round") {
  const Schedule schedule =
      generated("pipedream", {.stages = 1, .micro_batches = 3, .data_parallel = 2, .blocking_sync = true});
  CHECK(compute(schedule, 0) == "0F0 0B0 0U0 0F1 0B1 0U1 0F2 0B2 0U2");
}

TEST_CASE("1F1B over replicas warms up as 1F1B-RR: 15-1 holds two per input replica") {
  const Schedule schedule = generated("1f1b", {.stages = 2, .micro_batches = 45, .replicas = {15, 1}});
  CHECK(compute(schedule, 3) == "0F3 0F18 0B3 0F33 0B18 0B33 0U0");
  CHECK(collective(schedule, 3) == "0AR0.0");
}

TEST_CASE("interleaved 1F1B reduces the chunk first whose last backward comes first: the last one") {
  const Schedule schedule =
      generated("interleaved_1f1b",
                {.stages = 2, .virtual_stages = 2, .micro_batches = 2, .data_parallel = 2, .buckets = {1, 1, 2, 1}});
  CHECK(compute(schedule, 0) == "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1 2U0 0U0");
  CHECK(collective(schedule, 0) == "2AR0.0 2AR0.1 0AR0.0");
  CHECK(compute(schedule, 1) == "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1 3U0 1U0");
}

TEST_CASE("Looped BFS reduces the last chunk first, too: its backwards are done before those of the chunk before it") {
  const Schedule schedule =
      generated("looped_bfs", {.stages = 2, .virtual_stages = 2, .micro_batches = 3, .data_parallel = 2});
  CHECK(compute(schedule, 0) == "0F0 0F1 0F2 2F0 2F1 2F2 2B2 2B1 2B0 0B2 0B1 0B0 2U0 0U0");
  CHECK(collective(schedule, 0) == "2AR0.0 0AR0.0");
}

TEST_CASE("one worker per stage in one copy reduces nothing, and updates all the same") {
  for (const ScheduleRule& rule : schedules()) {
    ScheduleShape shape{.stages = rule.name == "data_parallel" ? 1 : 2, .micro_batches = 4};
    if (rule.facts.takes_chunks) shape.virtual_stages = 2;
    shape.chunk_order = rule.chunk_order;
    REQUIRE(rule.refusal(shape) == "");
    const bool two_ways = both_ways(rule.chunk_order);  // two workers in the one copy
    for (const Lane& lane : rule.generate(shape).positions) {
      CHECK(lane.communication[kReductions].empty() == !two_ways);
      CHECK(lane.compute.back().kind == Kind::Update);
    }
  }
}

TEST_CASE("refusals name the value, the law and the way out") {
  const auto refusal = [](const char* name, const ScheduleShape& shape) { return find_schedule(name)->refusal(shape); };
  CHECK(
      refusal("interleaved_1f1b", {.stages = 4, .virtual_stages = 2, .micro_batches = 10}) ==
      "interleaved_1f1b takes micro-batches through the chunks in groups of K, but M = 10 is not a multiple of K = 4: "
      "use 8 or 12");
  CHECK(refusal("interleaved_1f1b", {.stages = 4, .virtual_stages = 2, .micro_batches = 3}) ==
        "interleaved_1f1b takes micro-batches through the chunks in groups of K, but M = 3 is not a multiple of K = 4: "
        "use 4");
  CHECK(refusal("interleaved_1f1b", {.stages = 4, .virtual_stages = 2, .micro_batches = 8, .group = 3}) ==
        "interleaved_1f1b takes as many micro-batches through a chunk as there are stages, or more, but "
        "plan.micro_batch_group is 3 for K = 4: use 4 or more");
  CHECK(
      refusal("interleaved_1f1b", {.stages = 4, .virtual_stages = 2, .micro_batches = 9, .group = 6}) ==
      "interleaved_1f1b takes micro-batches through the chunks in groups of 6, the last of M = 9 has 3, less than K = "
      "4: use 6 or 10 micro-batches, or another plan.micro_batch_group");
  CHECK(refusal("interleaved_1f1b", {.stages = 4, .virtual_stages = 2, .micro_batches = 10, .group = 6}) == "");
  CHECK(refusal("interleaved_zb", {.stages = 4, .virtual_stages = 2, .micro_batches = 9}) ==
        "interleaved_zb takes micro-batches through the chunks in M div K = 2 groups of one size, but M = 9 is not a "
        "multiple of that: use 8");
  CHECK(refusal("interleaved_1f1b", {.stages = 4, .micro_batches = 8}) ==
        "interleaved_1f1b with one chunk per stage has nothing to interleave: set plan.virtual_stages: 2 or more, or "
        "use schedule: 1f1b");
  CHECK(refusal("looped_bfs", {.stages = 4, .micro_batches = 8}) ==
        "looped_bfs with one chunk per stage has nothing to loop over: set plan.virtual_stages: 2 or more, or use "
        "schedule: gpipe");
  CHECK(refusal("gpipe", {.stages = 4, .virtual_stages = 2, .micro_batches = 8}) ==
        "gpipe keeps each stage in one piece, but virtual_stages is 2: set plan.virtual_stages: 1, or use schedule: "
        "interleaved_1f1b");
  CHECK(
      refusal("eager_1f1b", {.stages = 2, .micro_batches = 8, .replicas = {2, 1}}) ==
      "eager_1f1b has one worker per stage, but plan.replicas asks for more: leave it out, use plan.data_parallel for "
      "whole copies, or use schedule: gpipe, 1f1b or pipedream");
  CHECK(refusal("data_parallel", {.stages = 4, .micro_batches = 8}) ==
        "data_parallel has one stage, but plan.stages is 4: set plan.stages: 1 and plan.data_parallel: N");
  CHECK(refusal("data_parallel", {.stages = 1, .micro_batches = 8, .replicas = {3}, .data_parallel = 2}) ==
        "data_parallel counts its workers in plan.data_parallel, but plan.replicas is 3: leave it out and set "
        "plan.data_parallel: 6");
  CHECK(refusal("1f1b", {.stages = 4, .micro_batches = 0}) == "M = 0 micro-batches: at least 1 is needed");
  CHECK(
      refusal("1f1b", {.stages = 64, .micro_batches = 2'000'000'000}) ==
      "M = 2000000000 micro-batches over 64 virtual stages: the lists would hold more than 134 million ops; use fewer "
      "micro-batches");
  CHECK(refusal("1f1b", {.stages = 70'000, .micro_batches = 1}) ==
        "70000 virtual stages: at most 65535 have a name in an op");
}

TEST_CASE("a formula stands only where its assumptions hold") {
  const auto bubble = [](const char* name, const ScheduleShape& shape) {
    return find_schedule(name)->bubble(shape).has_value();
  };
  CHECK(bubble("1f1b", {.stages = 2, .micro_batches = 4}));
  CHECK_FALSE(bubble("1f1b", {.stages = 2, .micro_batches = 4, .replicas = {2, 1}}));
  CHECK_FALSE(bubble("gpipe", {.stages = 2, .micro_batches = 4, .recompute = {true, true}}));
  CHECK(bubble("pipedream", {.stages = 2, .micro_batches = 4, .replicas = {2, 2}}));
  CHECK_FALSE(bubble("pipedream", {.stages = 2, .micro_batches = 4, .replicas = {2, 1}}));
}

}  // namespace pipewright::tests
