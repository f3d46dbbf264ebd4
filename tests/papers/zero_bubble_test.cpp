// Published bubble rates, to all four decimals: [ZeroBubble23] table 5 from the times of its table 9, and its table 8.
//     rate = (cost - m (F + B + W)) / cost
// The cost is the makespan, of the schedules made for times and of ZB-H2 the longest span of a stage, first op's start to
// last op's end. Order of Megatron-LM, B and W in one op, each transfer a latency that blocks neither side, equal stages
// (the paper's first and last stage have one layer less, which its rates do not show), no optimizer.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

#include <doctest/doctest.h>

#include "core/cost/memory_model.hpp"
#include "core/plan/given_schedule.hpp"
#include "sim/kth_wrap.hpp"
#include "sim/schedules/made_order.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"

namespace pipewright::tests {
namespace {

struct Setting {
  const char* model;
  int stages, micro_batches;         // p, m
  Time forward, input, weight, hop;  // T_F, T_B, T_W, T_comm, published in ms to three decimals
};
struct Table5 {
  const char* model;
  int stages, micro_batches, chunks;  // v of 1F1B-I: one layer per chunk
  Time forward, input, weight, hop;
  double rate_1f1b, rate_interleaved, rate_h1, rate_h2, rate_1p, rate_2p;

  Setting setting() const { return {model, stages, micro_batches, forward, input, weight, hop}; }
};
struct Table8 {
  const char* model;
  int stages, micro_batches;
  Time forward, input, weight, hop;  // of half a stage: a chunk of ZB-V, and of 1F1B-I
  double rate_1f1b, rate_interleaved, rate_h1, rate_h2, rate_zbv;

  Setting setting() const { return {model, stages, micro_batches, 2 * forward, 2 * input, 2 * weight, hop}; }
};

constexpr std::array kTable5 = {
    Table5{
        "1.5B", 8, 24, 3, {18'522'000}, {18'086'000}, {9'337'000}, {601'000}, .2431, .1055, .1585, .1083, .1585, .0433},
    Table5{
        "1.5B", 8, 32, 3, {18'513'000}, {18'086'000}, {9'331'000}, {626'000}, .1985, .0818, .1242, .0837, .1242, .0039},
    Table5{
        "1.5B", 8, 64, 3, {18'546'000}, {18'097'000}, {9'321'000}, {762'000}, .1240, .0443, .0674, .0444, .0674, .0026},
    Table5{"6.2B",
           8,
           24,
           4,
           {29'718'000},
           {29'444'000},
           {19'927'000},
           {527'000},
           .2347,
           .0808,
           .1323,
           .0698,
           .1323,
           .0029},
    Table5{"6.2B",
           8,
           32,
           4,
           {29'802'000},
           {29'428'000},
           {19'530'000},
           {577'000},
           .1898,
           .0628,
           .1045,
           .0559,
           .1045,
           .0022},
    Table5{"6.2B",
           8,
           64,
           4,
           {29'935'000},
           {29'621'000},
           {19'388'000},
           {535'000},
           .1091,
           .0320,
           .0554,
           .0294,
           .0554,
           .0010},
    Table5{"14.6B",
           16,
           48,
           3,
           {11'347'000},
           {11'248'000},
           {8'132'000},
           {377'000},
           .2552,
           .1104,
           .1397,
           .0672,
           .1397,
           .0066},
    Table5{"14.6B",
           16,
           64,
           3,
           {11'307'000},
           {11'254'000},
           {8'101'000},
           {379'000},
           .2082,
           .0852,
           .1088,
           .0516,
           .1088,
           .0054},
    Table5{"14.6B",
           16,
           128,
           3,
           {11'325'000},
           {11'308'000},
           {8'109'000},
           {378'000},
           .1251,
           .0445,
           .0576,
           .0266,
           .0576,
           .0028},
    Table5{"28.3B",
           32,
           96,
           2,
           {10'419'000},
           {10'207'000},
           {7'715'000},
           {408'000},
           .2646,
           .1493,
           .1421,
           .0641,
           .1421,
           .0038},
    Table5{"28.3B",
           32,
           128,
           2,
           {10'408'000},
           {10'204'000},
           {7'703'000},
           {408'000},
           .2168,
           .1164,
           .1106,
           .0490,
           .1106,
           .0029},
    Table5{"28.3B",
           32,
           256,
           2,
           {10'402'000},
           {10'248'000},
           {7'698'000},
           {460'000},
           .1352,
           .0624,
           .0594,
           .0257,
           .0594,
           .0018},
};
constexpr std::array kTable8 = {
    Table8{"6.2B", 16, 48, {14'407'000}, {14'380'000}, {9'676'000}, {1'610'000}, .2668, .1499, .1536, .0823, .0697},
    Table8{"6.2B", 16, 64, {14'412'000}, {14'393'000}, {9'688'000}, {1'621'000}, .2206, .1169, .1198, .0630, .0533},
    Table8{"6.2B", 16, 128, {14'316'000}, {14'306'000}, {9'639'000}, {1'619'000}, .1390, .0621, .0637, .0325, .0274},
    Table8{"14.6B", 24, 72, {6'763'000}, {6'969'000}, {5'251'000}, {755'000}, .2699, .1519, .1439, .0628, .0638},
    Table8{"14.6B", 24, 96, {6'783'000}, {6'984'000}, {5'259'000}, {758'000}, .2229, .1184, .1121, .0480, .0483},
    Table8{"14.6B", 24, 192, {6'785'000}, {6'990'000}, {5'260'000}, {770'000}, .1403, .0630, .0595, .0247, .0250},
    Table8{"28.3B", 32, 96, {9'458'000}, {9'748'000}, {7'288'000}, {879'000}, .2676, .1509, .1429, .0629, .0593},
    Table8{"28.3B", 32, 128, {9'469'000}, {9'744'000}, {7'306'000}, {892'000}, .2204, .1177, .1111, .0478, .0451},
    Table8{"28.3B", 32, 256, {9'447'000}, {9'644'000}, {7'193'000}, {887'000}, .1362, .0626, .0593, .0251, .0236},
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

double rate_of(const ScheduleShape& shape, const Setting& s, Time cost) {
  return 1 - ratio(std::int64_t{shape.micro_batches} * (s.forward + s.input + s.weight), cost);
}

Time longest_span(const Timeline& timeline) {
  Time longest{0};
  for (const LaneTimes& worker : timeline.workers)
    longest = std::max(longest, worker.compute.back().end - worker.compute.front().start);
  return longest;
}

enum class Cost { Makespan, LongestSpan };
// Times of a setting are those of a stage, which has the shape's chunks.
double bubble_rate(const char* name, const ScheduleShape& shape, const Setting& s, Cost cost) {
  const auto part = [&](Time time) { return Time{time.value / shape.virtual_stages}; };
  const Timeline timeline = static_order(find_schedule(name)->generate(shape),
                                         stage_costs(shape, part(s.forward), part(s.input), part(s.weight), s.hop));
  return rate_of(shape, s, cost == Cost::Makespan ? timeline.makespan : longest_span(timeline));
}

// Per layer of 1024 tokens: F keeps 34 h + 5 a s, B leaves 32 h of it for W.                   [ZeroBubble23] table 1
struct LayerMemory {
  std::int64_t held, kept;
};
LayerMemory layer_memory(std::string_view model) {
  struct Size {
    std::string_view model;
    std::int64_t hidden, heads;
  };
  constexpr std::array sizes = {Size{"1.5B", 2304, 24}, Size{"6.2B", 4096, 32}, Size{"14.6B", 5120, 40},
                                Size{"28.3B", 6144, 48}};
  const Size& size = *std::find_if(sizes.begin(), sizes.end(), [&](const Size& each) { return each.model == model; });
  return {34 * size.hidden + 5 * size.heads * 1024, 32 * size.hidden};
}

ScheduleShape shape_made_for(const char* name, const Setting& s, int chunks, std::int64_t cap,
                             const LayerMemory& memory) {
  const ScheduleRule& rule = *find_schedule(name);
  ScheduleShape shape{
      .stages = s.stages, .virtual_stages = chunks, .micro_batches = s.micro_batches, .chunk_order = rule.chunk_order};
  const auto alike = [](int count, std::int64_t value) {
    return std::vector<std::int64_t>(static_cast<std::size_t>(count), value);
  };
  const ZeroBubbleTimes times{.forward = alike(shape.chunks(), s.forward.value / chunks),
                              .input = alike(shape.chunks(), s.input.value / chunks),
                              .weights = alike(shape.chunks(), s.weight.value / chunks),
                              .held = alike(shape.chunks(), memory.held),
                              .kept_after_input = alike(shape.chunks(), memory.kept),
                              .cap = alike(s.stages, cap * memory.held),
                              .hop = s.hop.value};
  auto order = std::make_shared<GivenSchedule>();
  order->stages = s.stages, order->virtual_stages = chunks, order->micro_batches = s.micro_batches;
  order->chunk_order = rule.chunk_order;
  order->compute = rule.made_for(one_hop_problem(shape, times));
  shape.given = order;
  return shape;
}

constexpr double kHalfADigit = 5e-5;

// Every hop is waited for by all in `bubble_rate`, which is .0008 to .005 above the published rate.
void check_interleaved(const Setting& s, int chunks, double published) {
  const ScheduleShape shape{.stages = s.stages, .virtual_stages = chunks, .micro_batches = s.micro_batches};
  const Schedule schedule = find_schedule("interleaved_1f1b")->generate(shape);
  const auto part = [&](Time time) { return Time{time.value / chunks}; };
  const auto makespan =
      makespan_with_kth_wraps(schedule, stage_costs(shape, part(s.forward), part(s.input), part(s.weight), s.hop));
  REQUIRE(makespan);
  CHECK(std::abs(rate_of(shape, s, *makespan) - published) < kHalfADigit);
  const double every = bubble_rate("interleaved_1f1b", shape, s, Cost::Makespan) - published;
  CHECK(every > .0007);
  CHECK(every < .0051);
}

void check_fixed(const Setting& s, double rate_1f1b, double rate_h1, double rate_h2) {
  const ScheduleShape shape{.stages = s.stages, .micro_batches = s.micro_batches};
  CHECK(std::abs(bubble_rate("1f1b", shape, s, Cost::Makespan) - rate_1f1b) < kHalfADigit);
  CHECK(std::abs(bubble_rate("zb_h1", shape, s, Cost::Makespan) - rate_h1) < kHalfADigit);
  CHECK(std::abs(bubble_rate("zb_h2", shape, s, Cost::LongestSpan) - rate_h2) < kHalfADigit);
}

}  // namespace

TEST_CASE("table 5: 72 bubble rates of 1F1B, 1F1B-I, ZB-H1, ZB-H2, ZB-1p and ZB-2p") {
  for (const Table5& row : kTable5) {
    const Setting s = row.setting();
    CAPTURE(s.model);
    CAPTURE(s.micro_batches);
    check_fixed(s, row.rate_1f1b, row.rate_h1, row.rate_h2);
    check_interleaved(s, row.chunks, row.rate_interleaved);
    for (const auto& [room, published] : {std::pair{1, row.rate_1p}, std::pair{2, row.rate_2p}}) {
      const ScheduleShape shape = shape_made_for("zb_auto", s, 1, room * s.stages, layer_memory(s.model));
      CHECK(std::abs(bubble_rate("zb_auto", shape, s, Cost::LongestSpan) - published) < kHalfADigit);
    }
  }
}

TEST_CASE(
    "ZB-2p of the first setting has the least idle time of all orders: M(f+b) + (K-1)(f+b+2c) + w is 1152599 us") {
  const Setting s = kTable5[0].setting();
  const ScheduleShape shape = shape_made_for("zb_auto", s, 1, 2 * s.stages, layer_memory(s.model));
  const Timeline timeline =
      static_order(find_schedule("zb_auto")->generate(shape), stage_costs(shape, s.forward, s.input, s.weight, s.hop));
  CHECK(longest_span(timeline) == Time{1'152'599'000});
  CHECK(longest_span(timeline) ==
        s.micro_batches * (s.forward + s.input) + (s.stages - 1) * (s.forward + s.input + 2 * s.hop) + s.weight);
}

TEST_CASE("ZB-V, table 8: 45 bubble rates of 1F1B, 1F1B-I, ZB-H1, ZB-H2 and ZB-V") {
  for (const Table8& row : kTable8) {
    const Setting s = row.setting();
    CAPTURE(s.model);
    CAPTURE(s.micro_batches);
    check_fixed(s, row.rate_1f1b, row.rate_h1, row.rate_h2);
    check_interleaved(s, 2, row.rate_interleaved);
    const ScheduleShape shape = shape_made_for("zbv_auto", s, 2, 2 * s.stages, layer_memory(s.model));
    CHECK(std::abs(bubble_rate("zbv_auto", shape, s, Cost::LongestSpan) - row.rate_zbv) < kHalfADigit);
  }
  const Setting s = kTable8[0].setting();
  const ScheduleShape shape = shape_made_for("zbv_auto", s, 2, 2 * s.stages, layer_memory(s.model));
  CHECK(longest_span(static_order(find_schedule("zbv_auto")->generate(shape),
                                  stage_costs(shape, kTable8[0].forward, kTable8[0].input, kTable8[0].weight,
                                              s.hop))) == Time{3'969'197'000});
}

TEST_CASE("1F1B's rates need its exposed hops: without them the first setting gives 7/31 = .2258 for .2431") {
  Setting s = kTable5[0].setting();
  s.hop = Time{0};
  const double rate = bubble_rate("1f1b", {.stages = 8, .micro_batches = 24}, s, Cost::Makespan);
  CHECK(std::abs(rate - 7.0 / 31.0) < 1e-12);
}

// [ControllableMemory24]: less memory, more idle time, in steps. The longest span of order(K, M, cap in chunks).
TEST_CASE("V, adaptive: 6K-1-3a idle slots with room for a chunks, 3 with one chunk less than 2K, none with 2K") {
  const auto span = [](int K, int M, std::int64_t cap) {
    const Setting s{"", K, M, {2}, {2}, {2}, {0}};
    const ScheduleShape shape = shape_made_for("v_auto", s, 2, cap, {1, 1});
    REQUIRE(find_schedule("v_auto")->refusal(shape) == "");
    return longest_span(static_order(find_schedule("v_auto")->generate(shape),
                                     stage_costs(shape, Time{1}, Time{1}, Time{1}, Time{0})))
        .value;
  };
  for (int K = 3; K <= 8; ++K)
    for (int cap = 2 * ((K + 4) / 3); cap <= 2 * K; ++cap) {
      CAPTURE(K);
      CAPTURE(cap);
      CHECK(span(K, 3 * K, cap) == 18 * K + (cap == 2 * K ? 0 : cap == 2 * K - 1 ? 3 : 6 * K - 1 - 3 * cap));
    }
  // With few micro-batches: the first one's way back to stage 0, and what cannot run before it.
  for (int K = 1; K <= 8; ++K)
    for (int M = 1; M <= 2 * K; ++M)
      CHECK(span(K, M, 2 * K) == std::max({4 * K - 1 + 2 * M, 5 * M + 2 * K - 1, 6 * M}));
  CHECK(span(4, 2, 8) == 19);
  CHECK(span(4, 4, 8) == 27);
  CHECK(span(4, 8, 8) == 48);
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
    "orders of a building block: V-Half idles 3K-7 or 3K-4 slots, V-Min 4K-5 or 4K-7, V-ZB K-1, V-1F1B about 5K") {
  const auto idle = [](std::string_view name, int K) {
    if (K == 1) return 0;
    if (name == "v_half") return K == 2 ? 1 : K % 2 == 0 ? 3 * K - 7 : 3 * K - 4;
    if (name == "v_min") return K % 3 == 0 ? 4 * K - 7 : 4 * K - 5;
    if (name == "v_zb") return K - 1;
    return K == 2 ? 4 : K == 3 ? 8 : K == 9 ? 36 : 5 * K - (K % 3 == 0 ? 8 : K % 3 == 1 ? 5 : 7);
  };
  for (const char* name : {"v_half", "v_min", "v_zb", "v_1f1b"}) {
    const ScheduleRule& rule = *find_schedule(name);
    const bool zero = name == std::string_view("v_zb");
    for (int K = 1; K <= 16; ++K)
      for (int M = 2 * K + (zero ? 1 : 0); M <= 64; M += 1 + M % 5) {
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

namespace {

// Of the worker with the most cells of `pair`, the time of the step in which it runs nothing.
std::int64_t idle_beside_cells(const Schedule& schedule, const Setting& each, Time pair) {
  StepCosts costs = stage_costs(schedule.shape, each.forward, each.input, each.weight, Time{0});
  costs.together = {.parts = {}, .share = 0, .delay_wgrad = false, .pair = pair};
  const Time passes = each.forward + each.input + each.weight;
  const int chunks = schedule.shape.virtual_stages;
  std::int64_t most = 0;
  for (const Lane& lane : schedule.positions)
    most = std::max(most, std::int64_t{std::ranges::count_if(lane.compute, [](const Op& op) { return op.with_next; })});
  return (static_order_makespan(schedule, costs) - std::int64_t{schedule.shape.micro_batches} * chunks * passes +
          most * (passes - pair))
      .value;
}

}  // namespace

// [DeepSeekIII24] table 2 and the README of the authors' repository: bubble, parameters and activations, B with W.
TEST_CASE("DualPipe's published table: (PP/2-1)(F&B+B-3W) idle where f = b >= w, weights twice, PP + 1 micro-batches") {
  for (const char* name : {"dualpipe", "dualpipev"}) {
    const ScheduleRule& rule = *find_schedule(name);
    const bool two_ways = both_ways(rule.chunk_order);
    for (const auto& [K, M] : {std::pair{2, 4}, {2, 10}, {4, 8}, {4, 14}, {6, 12}, {8, 16}, {8, 22}}) {
      const ScheduleShape shape{
          .stages = K, .virtual_stages = two_ways ? 1 : 2, .micro_batches = M, .chunk_order = rule.chunk_order};
      const Schedule schedule = rule.generate(shape);
      const int PP = two_ways ? K : 2 * K;
      CAPTURE(name);
      CAPTURE(K);
      CAPTURE(M);
      for (int b = 1; b <= 4; ++b)
        for (int f = 1; f <= b; ++f)
          for (int w = 1; w <= f; ++w)
            for (int pair = b + w; pair <= f + b + w; ++pair) {
              const std::int64_t published = (PP / 2 - 1) * (pair + (b + w) - 3 * w);
              const std::int64_t idle = idle_beside_cells(schedule, {"", K, M, {f}, {b}, {w}, {0}}, Time{pair});
              CHECK((f == b ? idle == published : idle <= published));
            }
      CHECK(idle_beside_cells(schedule, {"", K, M, {1}, {1}, {1}, {0}}, Time{3}) == 2 * (PP / 2 - 1));
      if (PP > 2) CHECK(idle_beside_cells(schedule, {"", K, M, {2}, {1}, {1}, {0}}, Time{4}) > (PP / 2 - 1) * 3);
      // 1F1B on PP workers holds one of PP stages, and PP micro-batches of it.
      MemoryModel memory{.chunks = {}, .reserve = {}, .capacity = {}};
      for (int v = 0; v < shape.chunks(); ++v)
        memory.chunks.push_back({.weights = Bytes{1}, .stash = {Bytes{1}, Bytes{1}}});
      for (int k = 0; k < K; ++k) {
        const MemoryPeak most = peak(memory, schedule, PositionId{k});
        CHECK(most.bytes.weights == Bytes{2});
        CHECK(most.in_flight == PP + 1);
      }
    }
  }
}

}  // namespace pipewright::tests
