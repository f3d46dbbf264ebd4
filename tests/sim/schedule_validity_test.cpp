// What the generators write passes the check that knows no generator, over every shape of a grid.
#include <map>
#include <memory>
#include <string_view>
#include <tuple>

#include <doctest/doctest.h>

#include "core/plan/schedule.hpp"
#include "sim/schedules/made_order.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::tests {
namespace {

// An order that is made is the same for all that have as many stages, chunks and micro-batches.
std::shared_ptr<const GivenSchedule> made_once(const ScheduleRule& rule, const ScheduleShape& shape) {
  static std::map<std::tuple<std::string_view, int, int, int>, std::shared_ptr<const GivenSchedule>> all;
  auto& order = all[{rule.name, shape.stages, shape.virtual_stages, shape.micro_batches}];
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(shape.chunks()), 1);
  if (!order)
    order = made_order(
        rule,
        one_hop_problem(
            shape,
            {.forward = ones, .input = ones, .weights = ones, .held = {}, .kept_after_input = {}, .cap = {}, .hop = 0}),
        shape.stages);
  return order;
}

constexpr int kMostSearched = 24;

// Every schedule that does not refuse the shape; returns how many there were. An order of several chunks is looked for
// where it has few ops: that takes up to a second.
int check_all(ScheduleShape shape) {
  int valid = 0;
  for (const ScheduleRule& rule : schedules()) {
    shape.given.reset();
    if (rule.finds_order && shape.virtual_stages > 1 && shape.chunks() * shape.micro_batches > kMostSearched) continue;
    if (!rule.refusal(shape).empty()) continue;
    if (rule.made_for != nullptr) shape.given = made_once(rule, shape);
    const std::string fault = validate(rule.generate(shape));
    if (!fault.empty()) {
      std::string replicas;
      for (int k = 0; k < shape.stages; ++k)
        replicas += " " + std::to_string(shape.replicas_of(k));
      INFO(rule.name << ", K = " << shape.stages << ", v = " << shape.virtual_stages << ", M = " << shape.micro_batches
                     << ", D = " << shape.data_parallel << ", replicas" << replicas);
      CHECK(fault == "");
    }
    ++valid;
  }
  return valid;
}

}  // namespace

TEST_CASE("every schedule is valid for K to 16, M to 64 and one chunk per stage, with and without recomputation" *
          doctest::test_suite("all combinations")) {
  for (int K = 1; K <= 16; ++K)
    for (int M = 1; M <= 64; ++M)
      for (const bool recompute : {false, true}) {
        ScheduleShape shape{.stages = K, .micro_batches = M};
        shape.recompute.assign(static_cast<std::size_t>(K), recompute);
        shape.recompute_except_last = M % 2 == 1;
        // naive, gpipe, 1f1b, eager_1f1b, bpipe, zb_h1, zb_h2, zb_auto, search, pipedream, pipedream_2bw; seq1f1b where all
        // are recomputed alike; data_parallel and moe_overlap_1f1b at K = 1
        CHECK(check_all(shape) == 11 + (shape.recompute_except_last ? 0 : 1) + (K == 1 ? 2 : 0));
      }
}

TEST_CASE("chunks there and back, and both ways: valid wherever they are not refused" *
          doctest::test_suite("all combinations")) {
  int valid = 0;
  for (int K = 1; K <= 12; ++K)
    for (int M = 1; M <= 48; ++M)
      for (const int D : {1, 2})
        for (const bool recompute : {false, true}) {
          ScheduleShape shape{.stages = K, .virtual_stages = 2, .micro_batches = M, .data_parallel = D};
          shape.recompute.assign(static_cast<std::size_t>(K), recompute);
          shape.chunk_order = ChunkOrder::V;
          const int there_and_back = check_all(shape);
          // zbv, zbv_auto, v_*, hanayo; dualpipev once M is enough; v_search
          CHECK(there_and_back == 8 + (M >= 2 * K ? 1 : 0) + (2 * K * M <= kMostSearched ? 1 : 0));
          shape.virtual_stages = 1, shape.chunk_order = ChunkOrder::BothWays;
          const int two_ways = check_all(shape);
          CHECK(two_ways == (K % 2 == 0 && M % 2 == 0 && M >= 2 * K ? 1 : 0));
          shape.chunk_order = ChunkOrder::InTurns;
          const int in_turns = check_all(shape);
          CHECK(in_turns == (K % 2 == 0 ? 1 : 0));  // chimera, with any number of micro-batches
          for (shape.pipelines = 4; shape.pipelines <= K; shape.pipelines += 2) {
            const int of_more = check_all(shape);
            CHECK(of_more == (K % shape.pipelines == 0 ? 1 : 0));
            valid += of_more;
          }
          shape.pipelines = 2, shape.chunk_order = ChunkOrder::Alternate;
          const int alternate = check_all(shape);
          CHECK(alternate == (K % 2 == 0 ? 1 : 0));  // gems
          valid += there_and_back + two_ways + in_turns + alternate;
        }
  CHECK(valid > 2000);
}

TEST_CASE("chunks in a loop are valid for K to 16, M to 64 and v to 4: interleaved 1F1B wherever K divides M" *
          doctest::test_suite("all combinations")) {
  for (int K = 1; K <= 16; ++K)
    for (int v = 2; v <= 4; ++v)
      for (int M = 1; M <= 64; ++M)
        for (const int copies : {1, 2}) {
          ScheduleShape shape{.stages = K, .virtual_stages = v, .micro_batches = M, .data_parallel = copies};
          shape.buckets.assign(static_cast<std::size_t>(K * v), 3);
          // looped_bfs; interleaved_1f1b and moe_overlap_1f1b; interleaved_zb; search
          const int searched = K * v * M <= kMostSearched ? 1 : 0;
          CHECK(check_all(shape) == 1 + (M % K == 0 ? 2 : 0) + (M % std::max(1, M / K) == 0 ? 1 : 0) + searched);
        }
}

TEST_CASE("replicated stages are valid in every combination of up to 5 replicas on up to 4 stages" *
          doctest::test_suite("all combinations")) {
  for (int K = 1; K <= 4; ++K) {
    int combinations = 1;
    for (int k = 0; k < K; ++k)
      combinations *= 5;
    for (int code = 0; code < combinations; ++code) {
      ScheduleShape shape{.stages = K};
      for (int k = 0, rest = code; k < K; ++k, rest /= 5)
        shape.replicas.push_back(1 + rest % 5);
      for (const int M : {1, 2, 3, 5, 8, 16, 17, 60, 61})
        for (const int copies : {1, 2})
          for (const bool blocking : {false, true}) {
            shape.micro_batches = M, shape.data_parallel = copies, shape.blocking_sync = blocking;
            CHECK(check_all(shape) >= 3);  // gpipe, 1f1b, pipedream
          }
    }
  }
}

}  // namespace pipewright::tests
