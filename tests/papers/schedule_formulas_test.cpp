// Closed forms of schedules whose orders no other program gives, on equal stages with free communication; and a scenario
// for each schedule, with the step that its formula says.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/cost/step_costs.hpp"
#include "io/read/read_scenario.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"

using namespace pipewright::tests;

namespace {

// Forward, gradient of the input, gradient of the weights, the same on every stage.
StepCosts pass_costs(const ScheduleShape& shape, Time forward, Time input, Time weight) {
  const auto chunks = at(shape.chunks());
  StepCosts costs =
      plain_costs(shape, std::vector<Time>(chunks, forward), std::vector<Time>(chunks, input + weight), Time{0});
  for (auto* const durations : {&costs.duration, &costs.duration_last})
    for (std::size_t v = 0; v < chunks; ++v) {
      (*durations)[v * kKinds + static_cast<std::size_t>(Kind::B)] = input;
      (*durations)[v * kKinds + static_cast<std::size_t>(Kind::W)] = weight;
    }
  return costs;
}

}  // namespace

// Units of K micro-batches, K / P in each of P pipelines: they fill all slots but 2 K / P - 2.     [Chimera21] table 3
TEST_CASE("Chimera with P pipelines: 2K/P-2 idle slots with equal passes, none where P = K") {
  const ScheduleRule& rule = *find_schedule("chimera");
  for (int K = 4; K <= 16; K += 2)
    for (int P = 2; P <= K; P += 2)
      for (int M = K; M <= 64 && K % P == 0; M += K) {
        const ScheduleShape shape{.stages = K, .micro_batches = M, .pipelines = P, .chunk_order = ChunkOrder::InTurns};
        CAPTURE(K);
        CAPTURE(P);
        CAPTURE(M);
        const Time step = static_order_makespan(rule.generate(shape), pass_costs(shape, Time{2}, Time{1}, Time{1}));
        CHECK(step == Time{2 * (2 * M + 2 * K / P - 2)});
        const auto bubble = textbook_bubble(rule, shape, {2, 1, 1});
        REQUIRE(bubble.has_value());
        CHECK(bubble->numerator * (2 * M + 2 * K / P - 2) == bubble->denominator * (2 * K / P - 2));
      }
  for (const int P : {0, 3, 8, 14})
    CHECK(rule.refusal({.stages = 12, .micro_batches = 12, .pipelines = P, .chunk_order = ChunkOrder::InTurns})
              .ends_with("but plan.pipelines is " + std::to_string(P) + " for K = 12: use 2, 4, 6 or 12"));
}

TEST_CASE(
    "Chimera with forward doubling: 3K/P-3 idle forwards however many micro-batches, with backwards twice as long") {
  const ScheduleRule& rule = *find_schedule("chimera");
  for (int K = 2; K <= 16; K += 2)
    for (int P = 2; P <= K; P += 2)
      for (int M = 2 * K; M <= 96 && K % P == 0; M += 2 * K) {
        const ScheduleShape shape{
            .stages = K, .micro_batches = M, .forwards = 2, .pipelines = P, .chunk_order = ChunkOrder::InTurns};
        CAPTURE(K);
        CAPTURE(P);
        CAPTURE(M);
        const Schedule schedule = rule.generate(shape);
        CHECK(validate(schedule) == "");
        CHECK(static_order_makespan(schedule, pass_costs(shape, Time{1}, Time{1}, Time{1})) ==
              Time{3 * M + 3 * K / P - 3});
        const auto bubble = textbook_bubble(rule, shape, {1, 1, 1});
        REQUIRE(bubble.has_value());
        CHECK(bubble->numerator == 3 * K / P - 3);
        CHECK(bubble->denominator == 3 * M + 3 * K / P - 3);
      }
  for (int M = 1; M <= 40; ++M)  // any number of them
    CHECK(validate(rule.generate(
              {.stages = 8, .micro_batches = M, .forwards = 2, .chunk_order = ChunkOrder::InTurns})) == "");
}

TEST_CASE("GEMS: (K-1) f + M (K b + f), all stages one after the other") {
  const ScheduleRule& rule = *find_schedule("gems");
  for (int K = 2; K <= 12; K += 2)
    for (int M = 1; M <= 16; ++M)
      for (const int w : {1, 3, 7}) {
        const ScheduleShape shape{.stages = K, .micro_batches = M, .chunk_order = ChunkOrder::Alternate};
        const int f = 4, b = 3 + w;
        const Time step = static_order_makespan(rule.generate(shape), pass_costs(shape, Time{f}, Time{3}, Time{w}));
        CHECK(step == Time{(K - 1) * f + M * (K * b + f)});
        const auto bubble = textbook_bubble(rule, shape, {f, 3, w});
        REQUIRE(bubble.has_value());
        CHECK(bubble->denominator == step.value);
        CHECK(bubble->denominator - bubble->numerator == M * (f + b));
      }
  // [Chimera21] table 2: (D-1)/(D+1/2) for long runs, b = 2 f.
  const auto bubble =
      textbook_bubble(rule, {.stages = 8, .micro_batches = 1'000'000, .chunk_order = ChunkOrder::Alternate}, {1, 1, 1});
  CHECK(double(bubble->numerator) / double(bubble->denominator) == doctest::Approx(7 / 8.5).epsilon(1e-6));
}

TEST_CASE(
    "Hanayo: K micro-batches in one wave idle 4K-4 of a chunk's forwards; more waves idle no longer than 10 % more") {
  const ScheduleRule& rule = *find_schedule("hanayo");
  for (int K = 1; K <= 16; ++K)
    for (int waves = 1; waves <= 4; ++waves) {
      const ScheduleShape shape{
          .stages = K, .virtual_stages = 2 * waves, .micro_batches = K, .chunk_order = ChunkOrder::V};
      const Time step = static_order_makespan(rule.generate(shape), pass_costs(shape, Time{1}, Time{1}, Time{1}));
      const std::int64_t idle = step.value - 6 * waves * K;
      CAPTURE(K);
      CAPTURE(waves);
      CHECK(idle >= 4 * K - 4);
      CHECK(10 * idle <= 11 * (4 * K - 4) + 10);
      const auto bubble = textbook_bubble(rule, shape, {});
      REQUIRE(bubble.has_value() == (waves == 1));
      if (waves > 1) continue;
      CHECK(bubble->numerator == idle);
      CHECK(bubble->denominator == step.value);
    }
}

TEST_CASE("Seq1F1B: the fill of 1F1B with slices in place of micro-batches, and K-1-k+Q slices held") {
  const ScheduleRule& rule = *find_schedule("seq1f1b");
  for (int K = 1; K <= 12; ++K)
    for (const int Q : {1, 2, 3, 8})
      for (int M = 1; M <= 16; M += 1 + M % 3) {
        const ScheduleShape shape{.stages = K, .micro_batches = M * Q, .slices = Q};
        const Schedule schedule = rule.generate(shape);
        CAPTURE(K);
        CAPTURE(Q);
        CAPTURE(M);
        CHECK(validate(schedule) == "");
        const Time step = static_order_makespan(schedule, pass_costs(shape, Time{4}, Time{5}, Time{3}));
        const auto bubble = textbook_bubble(rule, shape, {4, 5, 3});
        REQUIRE(bubble.has_value());
        CHECK(bubble->numerator * step.value == bubble->denominator * (step.value - 12 * M * Q));
        for (int k = 0; k < K; ++k)
          CHECK(rule.peak_in_flight(shape, k) == std::min(M * Q, K - 1 - k + Q));
        if (Q > 1) {  // every slice waits for the one that it reads
          Schedule wrong = schedule;
          std::swap(wrong.positions[0].compute[0], wrong.positions[0].compute[1]);
          CHECK(validate(wrong).find("reads what the slice before it computes") != std::string::npos);
          continue;
        }
        const Schedule whole = find_schedule("1f1b")->generate(shape);
        for (int k = 0; k < K; ++k)
          CHECK(schedule.positions[k].compute == whole.positions[k].compute);
      }
}

TEST_CASE("PipeDream-2BW: G updates take G m (f + b) + (K - 1)(f + b), and no stage waits for one") {
  const ScheduleRule& rule = *find_schedule("pipedream_2bw");
  for (int K = 1; K <= 8; ++K)
    for (const int every : {K, K + 1, 2 * K + 3})
      for (const int rounds : {1, 2, 5}) {
        const ScheduleShape shape{.stages = K, .micro_batches = rounds * every, .update_every = every};
        const Schedule schedule = rule.generate(shape);
        CHECK(validate(schedule) == "");
        CHECK(static_order_makespan(schedule, pass_costs(shape, Time{4}, Time{5}, Time{3})) ==
              Time{rounds * every * 12 + (K - 1) * 12});
        for (int k = 0; k < K; ++k)
          CHECK(std::count_if(schedule.positions[k].compute.begin(), schedule.positions[k].compute.end(),
                              [](const Op& op) { return op.kind == Kind::Update; }) == rounds);
      }
  CHECK(rule.refusal({.stages = 4, .micro_batches = 8, .update_every = 3})
            .ends_with("plan.update_every is 3 for K = 4: use 4 or more"));
}

TEST_CASE("scenarios/schedules has one for each schedule, which takes the step of its formula") {
  const char* const source = std::getenv("PIPEWRIGHT_SOURCE");
  REQUIRE(source != nullptr);
  const std::string root = source;
  // Four stages, eight micro-batches, f = b = w = 1 ms, in quarters of a ms, without the updates.
  const std::map<std::string, int> quarters = {
      {"naive", 4 * 4 * 8 * 3},
      {"gpipe", 4 * (8 + 3) * 3},
      {"1f1b", 4 * (8 + 3) * 3},
      {"eager_1f1b", 4 * (8 + 3) * 3},
      {"bpipe", 4 * (8 + 3) * 3},
      {"seq1f1b", (4 * 8 + 3) * 3},
      {"interleaved_1f1b", 2 * (2 * 8 + 3) * 3},
      {"moe_overlap_1f1b", 2 * (2 * 8 + 3) * 3},
      {"looped_bfs", 2 * (2 * 8 + 3) * 3},
      {"zb_h1", 4 * (8 * 3 + 3)},
      {"zb_h2", 4 * (8 * 3 + 3)},
      {"zb_auto", 4 * (8 * 3 + 3)},
      {"search", 4 * (8 * 3 + 3)},
      {"interleaved_zb", 2 * (2 * 8 * 3 + 3)},
      {"zbv", 2 * (6 * 8 + 3)},
      {"zbv_auto", 2 * (6 * 8 + 3)},
      {"v_half", 2 * (6 * 8 + 3 * 4 - 7)},
      {"v_min", 2 * (6 * 8 + 4 * 4 - 5)},
      {"v_zb", 2 * (6 * 12 + 3)},
      {"v_1f1b", 2 * (6 * 8 + 5 * 4 - 5)},
      {"v_auto", 2 * (6 * 8 + 6 * 4 - 1 - 3 * 6)},
      {"v_search", 2 * (6 * 8 + 3)},
      {"hanayo", 61},  // found, not derived: M = K = 4, two waves, 48 of them work
      {"gems", 4 * (3 + 8 * (4 * 2 + 1))},
      {"chimera", 4 * 8 * 3},  // four pipelines, no bubble
      {"dualpipe", 4 * (8 * 3 + 1)},
      {"dualpipev", 2 * (6 * 8 + 3)},
      {"pipedream", 4 * 16 * 3},
      {"pipedream_2bw", 4 * 16 * 3},
      {"data_parallel", 4 * 2 * 4 * 3},
  };
  for (const ScheduleRule& rule : schedules()) {
    const std::string name(rule.name);
    CAPTURE(name);
    const std::string file = root + "/scenarios/schedules/" + name + ".yaml";
    REQUIRE(std::filesystem::exists(file));
    const Scenario scenario = read_scenario(file, ReadOptions{.config_path = {root + "/configs"}});
    CHECK(scenario.plan.schedule.value == name);
    REQUIRE(quarters.contains(name));
    const CostModel cost(scenario);
    const Report report = price(find_plan(scenario, cost), cost, Engine::Auto).report;
    CHECK(report.fits);
    const Time passes = Time{250'000} * quarters.at(name);
    CHECK(report.step_time >= passes);
    CHECK(report.step_time <= passes + Time{60'000});  // and an update, and what is left of an all-reduce
  }
  for (const auto& entry : std::filesystem::directory_iterator(root + "/scenarios/schedules"))
    CHECK(quarters.contains(entry.path().stem().string()));
}
