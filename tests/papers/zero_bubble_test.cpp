// Published bubble rates of 1F1B, interleaved 1F1B, ZB-H1, ZB-H2, ZB-1p and ZB-2p: [ZeroBubble23] table 5, from the times of its table 9.
//     rate = (cost - m (F + B + W)) / cost,   cost = longest span of a stage, first op's start to last op's end
// Order of Megatron-LM, B and W in one op, each transfer a latency that blocks neither side, equal stages (the paper's
// first and last stage have one layer less, which its rates do not show), no optimizer.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include <doctest/doctest.h>

#include "core/plan/given_schedule.hpp"
#include "sim/schedules/table.hpp"
#include "sim/schedules/zb_auto.hpp"
#include "sim/static_order.hpp"

namespace pipewright {
namespace {

struct Setting {
  const char* model;
  int stages, micro_batches, chunks;  // p, m, and v of 1F1B-I: one layer per chunk
  Time forward, input, weight, hop;   // T_F, T_B, T_W, T_comm, published in ms to three decimals
  double rate, interleaved_rate, h1_rate, h2_rate;
};

constexpr std::array kSettings = {
    Setting{"1.5B", 8, 24, 3, {18'522'000}, {18'086'000}, {9'337'000}, {601'000}, .2431, .1055, .1585, .1083},
    Setting{"6.2B", 8, 24, 4, {29'718'000}, {29'444'000}, {19'927'000}, {527'000}, .2347, .0808, .1323, .0698},
    Setting{"14.6B", 16, 48, 3, {11'347'000}, {11'248'000}, {8'132'000}, {377'000}, .2552, .1104, .1397, .0672},
    Setting{"28.3B", 32, 96, 2, {10'419'000}, {10'207'000}, {7'715'000}, {408'000}, .2646, .1493, .1421, .0641},
};

// Forward, gradient of the input, gradient of the weights, the same on every stage.
StepCosts stage_costs(const ScheduleShape& shape, Time forward, Time input, Time weight, Time hop) {
  const auto chunks = static_cast<std::size_t>(shape.chunks());
  StepCosts costs =
      plain_costs(shape, std::vector<Time>(chunks, forward), std::vector<Time>(chunks, input + weight), hop);
  for (auto* const durations : {&costs.duration, &costs.duration_last})
    for (std::size_t v = 0; v < chunks; ++v) {
      (*durations)[v * kKinds + static_cast<std::size_t>(Kind::B)] = input;
      (*durations)[v * kKinds + static_cast<std::size_t>(Kind::W)] = weight;
    }
  return costs;
}

double bubble_rate(const char* name, const ScheduleShape& shape, Time forward, Time input, Time weight, Time hop) {
  const StepCosts costs = stage_costs(shape, forward, input, weight, hop);
  Time longest{0};
  for (const LaneTimes& worker : static_order(find_schedule(name)->generate(shape), costs).workers)
    longest = std::max(longest, worker.compute.back().end - worker.compute.front().start);
  const Time work = std::int64_t{shape.micro_batches} * shape.virtual_stages * (forward + input + weight);
  return 1 - ratio(work, longest);
}

}  // namespace

TEST_CASE("the four published bubble rates of 1F1B come out to all four decimals") {
  for (const Setting& s : kSettings) {
    CAPTURE(s.model);
    const double rate = bubble_rate("1f1b", {.stages = s.stages, .micro_batches = s.micro_batches}, s.forward, s.input,
                                    s.weight, s.hop);
    CHECK(std::abs(rate - s.rate) < 5e-5);
  }
}

TEST_CASE("1F1B's rates need its exposed hops: without them the first setting gives 7/31 = .2258 for .2431") {
  const Setting& s = kSettings[0];
  const double rate = bubble_rate("1f1b", {.stages = 8, .micro_batches = 24}, s.forward, s.input, s.weight, Time{0});
  CHECK(std::abs(rate - 7.0 / 31.0) < 1e-12);
}

TEST_CASE("the four published bubble rates of ZB-H1 and of ZB-H2 come out to all four decimals") {
  for (const Setting& s : kSettings)
    for (const auto& [name, published] : {std::pair{"zb_h1", s.h1_rate}, std::pair{"zb_h2", s.h2_rate}}) {
      CAPTURE(s.model);
      CAPTURE(name);
      const double rate = bubble_rate(name, {.stages = s.stages, .micro_batches = s.micro_batches}, s.forward, s.input,
                                      s.weight, s.hop);
      CHECK(std::abs(rate - published) < 5e-5);
    }
}

TEST_CASE("the published bubble rates of ZB-1p and ZB-2p come out to all four decimals, for their times and memory") {
  struct Table5Room {
    std::int64_t hidden, heads;
    double one, two;  // rates with room for K and 2 K micro-batches
  };
  constexpr std::array kModels = {Table5Room{2304, 24, .1585, .0433}, Table5Room{4096, 32, .1323, .0029},
                                  Table5Room{5120, 40, .1397, .0066}, Table5Room{6144, 48, .1421, .0038}};
  const ScheduleRule& rule = *find_schedule("zb_auto");
  for (std::size_t i = 0; i < kSettings.size(); ++i) {
    const Setting& s = kSettings[i];
    CAPTURE(s.model);
    // Per layer of 1024 tokens: F keeps 34 h + 5 a s, B leaves 32 h of it for W.             [ZeroBubble23] table 1
    const std::int64_t held = 34 * kModels[i].hidden + 5 * kModels[i].heads * 1024, kept = 32 * kModels[i].hidden;
    for (const int room : {1, 2}) {
      const auto alike = [&](std::int64_t value) {
        return std::vector<std::int64_t>(static_cast<std::size_t>(s.stages), value);
      };
      const ZeroBubbleTimes times{.forward = alike(s.forward.value),
                                  .input = alike(s.input.value),
                                  .weights = alike(s.weight.value),
                                  .held = alike(held),
                                  .kept_after_input = alike(kept),
                                  .cap = alike(room * s.stages * held),
                                  .hop = s.hop.value};
      auto order = std::make_shared<GivenSchedule>();
      order->stages = s.stages, order->micro_batches = s.micro_batches;
      order->compute = rule.made_for(s.micro_batches, times);
      const ScheduleShape shape{.stages = s.stages, .micro_batches = s.micro_batches, .given = order};
      const double rate = bubble_rate("zb_auto", shape, s.forward, s.input, s.weight, s.hop);
      CHECK(std::abs(rate - (room == 1 ? kModels[i].one : kModels[i].two)) < 5e-5);
    }
  }
}

TEST_CASE("ZB-H1 takes M(f+b+w) + (K-1)(f+b-w) for M >= K and w <= min(f, b): 27 for K = 4, M = 8 and times of 1") {
  for (int K = 1; K <= 8; ++K)
    for (int M = K; M <= 24; M += 1 + M % 4)
      for (int f = 1; f <= 5; ++f)
        for (int b = 1; b <= 5; ++b)
          for (int w = 1; w <= std::min(f, b); ++w) {
            const ScheduleShape shape{.stages = K, .micro_batches = M};
            const StepCosts costs = stage_costs(shape, Time{f}, Time{b}, Time{w}, Time{0});
            CHECK(static_order_makespan(find_schedule("zb_h1")->generate(shape), costs) ==
                  Time{M * (f + b + w) + (K - 1) * (f + b - w)});
          }
  const ScheduleShape shape{.stages = 4, .micro_batches = 8};
  CHECK(static_order_makespan(find_schedule("zb_h1")->generate(shape),
                              stage_costs(shape, Time{1}, Time{1}, Time{1}, Time{0})) == Time{27});
}

TEST_CASE("ZB-H2 takes M(f+b+w) + (K-1)max(f, f+b-2w) for M >= 2K-1 and w <= min(f, b): 27 for K = 4, M = 8") {
  const ScheduleRule& rule = *find_schedule("zb_h2");
  for (int K = 1; K <= 8; ++K)
    for (int M = 2 * K - 1; M <= 24; M += 1 + M % 4)
      for (int f = 1; f <= 5; ++f)
        for (int b = 1; b <= 5; ++b)
          for (int w = 1; w <= std::min(f, b); ++w) {
            const ScheduleShape shape{.stages = K, .micro_batches = M};
            const StepCosts costs = stage_costs(shape, Time{f}, Time{b}, Time{w}, Time{0});
            const Time step = static_order_makespan(rule.generate(shape), costs);
            CHECK(step == Time{M * (f + b + w) + (K - 1) * std::max(f, f + b - 2 * w)});
            const auto bubble = textbook_bubble(rule, shape, {f, b, w});
            REQUIRE(bubble.has_value() == (b <= 2 * w));
            if (bubble) CHECK(bubble->numerator * step.value == bubble->denominator * (K - 1) * f);
          }
  const ScheduleShape shape{.stages = 4, .micro_batches = 8};
  CHECK(static_order_makespan(rule.generate(shape), stage_costs(shape, Time{1}, Time{1}, Time{1}, Time{0})) ==
        Time{27});
  CHECK_FALSE(textbook_bubble(rule, {.stages = 4, .micro_batches = 6}, {}));
}

TEST_CASE("interleaved zero bubble waits K - 1 forwards of a chunk where passes are equal, whatever v is") {
  const ScheduleRule& rule = *find_schedule("interleaved_zb");
  for (int K = 1; K <= 12; ++K)
    for (int v = 2; v <= 4; ++v)
      for (int M = K; M <= 48; ++M) {
        const ScheduleShape shape{.stages = K, .virtual_stages = v, .micro_batches = M};
        if (!rule.refusal(shape).empty()) continue;
        const Time step =
            static_order_makespan(rule.generate(shape), stage_costs(shape, Time{1}, Time{1}, Time{1}, Time{0}));
        CAPTURE(K);
        CAPTURE(v);
        CAPTURE(M);
        CHECK(step == Time{3 * v * M + K - 1});
        const auto bubble = textbook_bubble(rule, shape, {});
        REQUIRE(bubble.has_value());
        CHECK(bubble->numerator * step.value == bubble->denominator * (K - 1));
      }
  CHECK_FALSE(textbook_bubble(rule, {.stages = 4, .virtual_stages = 2, .micro_batches = 8}, {10, 12, 8}));
}

TEST_CASE("ZB-V: no stage waits once it has begun where passes are equal, and the last begins K - 1 forwards late") {
  const ScheduleRule& rule = *find_schedule("zbv");
  for (int K = 1; K <= 12; ++K)
    for (int M = 2 * K - 1; M <= 36; M += 1 + M % 3) {
      const ScheduleShape shape{.stages = K, .virtual_stages = 2, .micro_batches = M, .chunk_order = ChunkOrder::V};
      const Timeline timeline =
          static_order(rule.generate(shape), stage_costs(shape, Time{1}, Time{1}, Time{1}, Time{0}));
      for (const LaneTimes& worker : timeline.workers)
        CHECK((worker.compute[worker.compute.size() - 3].end - worker.compute.front().start).value == 6 * M);
      CHECK(timeline.makespan == Time{6 * M + K - 1});
      const auto bubble = textbook_bubble(rule, shape, {});
      REQUIRE(bubble.has_value());
      CHECK(bubble->numerator * timeline.makespan.value == bubble->denominator * (K - 1));
    }
  CHECK_FALSE(textbook_bubble(rule, {.stages = 4, .virtual_stages = 2, .micro_batches = 6}, {}));
  CHECK_FALSE(textbook_bubble(rule, {.stages = 4, .virtual_stages = 2, .micro_batches = 8}, {10, 12, 8}));
}

// Slots that the orders of their authors leave idle; exact from 2 K micro-batches on.
TEST_CASE(
    "orders of a building block: V-Half idles 3K-7 or 3K-4 slots, V-Min 4K-5 or 4K-7, V-1F1B about 5K, for any M") {
  const auto idle = [](std::string_view name, int K) {
    if (K == 1) return 0;
    if (name == "v_half") return K == 2 ? 1 : K % 2 == 0 ? 3 * K - 7 : 3 * K - 4;
    if (name == "v_min") return K % 3 == 0 ? 4 * K - 7 : 4 * K - 5;
    return K == 2 ? 4 : K == 3 ? 8 : K == 9 ? 36 : 5 * K - (K % 3 == 0 ? 8 : K % 3 == 1 ? 5 : 7);
  };
  for (const char* name : {"v_half", "v_min", "v_1f1b"}) {
    const ScheduleRule& rule = *find_schedule(name);
    for (int K = 1; K <= 16; ++K)
      for (int M = 2 * K; M <= 64; M += 1 + M % 5) {
        const ScheduleShape shape{.stages = K, .virtual_stages = 2, .micro_batches = M, .chunk_order = ChunkOrder::V};
        const Time step =
            static_order_makespan(rule.generate(shape), stage_costs(shape, Time{1}, Time{1}, Time{1}, Time{0}));
        CAPTURE(name);
        CAPTURE(K);
        CAPTURE(M);
        CHECK(step == Time{6 * M + idle(name, K)});
        const auto bubble = textbook_bubble(rule, shape, {});
        REQUIRE(bubble.has_value());
        CHECK(bubble->numerator == idle(name, K));
        CHECK(bubble->denominator == step.value);
      }
    CHECK_FALSE(textbook_bubble(rule, {.stages = 4, .virtual_stages = 2, .micro_batches = 7}, {}));
    CHECK_FALSE(textbook_bubble(rule, {.stages = 4, .virtual_stages = 2, .micro_batches = 8}, {10, 12, 9}));
  }
  // A whole backward is one op: only its sum counts.
  CHECK(textbook_bubble(*find_schedule("v_1f1b"), {.stages = 4, .virtual_stages = 2, .micro_batches = 8}, {10, 12, 8}));
}

TEST_CASE("Chimera: (K-2)/(2M+K-2) of the step with equal passes, and a wait per unit with backwards twice as long") {
  const ScheduleRule& rule = *find_schedule("chimera");
  for (int K = 2; K <= 16; K += 2)
    for (int M = 1; M <= 64; ++M) {
      const ScheduleShape shape{.stages = K, .micro_batches = M, .chunk_order = ChunkOrder::InTurns};
      const auto step = [&](int input, int weights) {
        return static_order_makespan(rule.generate(shape),
                                     stage_costs(shape, Time{2}, Time{input}, Time{weights}, Time{0}));
      };
      CAPTURE(K);
      CAPTURE(M);
      if (M % K == 0) {
        CHECK(step(1, 1) == Time{2 * (2 * M + K - 2)});
        CHECK(step(2, 2) == Time{2 * (3 * M + (K - 2) * (M / K + 1))});
      }
      for (const int half : {1, 2}) {
        const auto bubble = textbook_bubble(rule, shape, {2, half, half});
        REQUIRE(bubble.has_value() == (M % K == 0));
        if (!bubble) continue;
        const std::int64_t idle = step(half, half).value - std::int64_t{2 + 2 * half} * M;
        CHECK(bubble->numerator * step(half, half).value == bubble->denominator * idle);
      }
    }
  CHECK_FALSE(textbook_bubble(rule, {.stages = 4, .micro_batches = 8, .chunk_order = ChunkOrder::InTurns}, {2, 2, 1}));
}

TEST_CASE("DualPipe and DualPipeV wait half a pipeline's forwards, and a pipeline's, where passes are equal") {
  for (const char* name : {"dualpipe", "dualpipev"}) {
    const ScheduleRule& rule = *find_schedule(name);
    const bool two_ways = both_ways(rule.chunk_order);
    for (int K = 2; K <= 12; K += two_ways ? 2 : 1)
      for (int M = 2 * K; M <= 48; M += 2) {
        const ScheduleShape shape{
            .stages = K, .virtual_stages = two_ways ? 1 : 2, .micro_batches = M, .chunk_order = rule.chunk_order};
        const Time step =
            static_order_makespan(rule.generate(shape), stage_costs(shape, Time{1}, Time{1}, Time{1}, Time{0}));
        CAPTURE(name);
        CAPTURE(K);
        CAPTURE(M);
        CHECK(step == Time{two_ways ? 3 * M + K / 2 - 1 : 6 * M + K - 1});
        const auto bubble = textbook_bubble(rule, shape, {});
        REQUIRE(bubble.has_value());
        CHECK(bubble->denominator == step.value);
        CHECK(bubble->numerator == (two_ways ? K / 2 - 1 : K - 1));
      }
  }
}

// A known miss: .1090 .0827 .1136 .1528 for .1055 .0808 .1104 .1493. One of the hops that a micro-batch makes in a
// round of chunks costs nothing in the paper's simulation; the text does not say which, so nothing is tuned, and .004
// covers the largest difference (.0035).
TEST_CASE("interleaved 1F1B comes within .004 of the published rates, always above them") {
  for (const Setting& s : kSettings) {
    CAPTURE(s.model);
    const ScheduleShape shape{.stages = s.stages, .virtual_stages = s.chunks, .micro_batches = s.micro_batches};
    const double rate = bubble_rate("interleaved_1f1b", shape, Time{s.forward.value / s.chunks}, Time{},
                                    Time{(s.input + s.weight).value / s.chunks}, s.hop);
    CHECK(rate > s.interleaved_rate);
    CHECK(rate - s.interleaved_rate < .004);
  }
}

}  // namespace pipewright
