// Closed forms of the papers against the static engine, with == in whole nanoseconds, over K <= 16 stages and M <= 64
// micro-batches. Forward f and backward b per micro-batch and stage, equal stages and free messages unless said
// otherwise. What divides is multiplied out first: chunk times are the inputs, fractions are compared crosswise.
#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include <doctest/doctest.h>

#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"

namespace pipewright::tests {
namespace {

struct Costs {
  Time f, b;
};
constexpr std::array kCosts = {Costs{{1}, {2}}, Costs{{3}, {3}}, Costs{{1'000'003}, {2'718'281}}};

StepCosts equal_stages(const ScheduleShape& shape, Costs costs, Time hop = {0}) {
  const auto chunks = static_cast<std::size_t>(shape.chunks());
  return plain_costs(shape, std::vector<Time>(chunks, costs.f), std::vector<Time>(chunks, costs.b), hop);
}

Schedule generated(const char* name, const ScheduleShape& shape) {
  const ScheduleRule* rule = find_schedule(name);
  REQUIRE(rule->refusal(shape) == "");
  return rule->generate(shape);
}

Time makespan(const char* name, const ScheduleShape& shape, const StepCosts& costs) {
  return static_order_makespan(generated(name, shape), costs);
}

Time busy(const Timeline& timeline) {
  Time sum;
  for (const LaneTimes& worker : timeline.workers)
    for (const Span& span : worker.compute)
      sum += span.end - span.start;
  return sum;
}

// The schedule's own formula says what the timeline shows: idle / (workers * makespan) = numerator / denominator.
void check_bubble(const char* name, const ScheduleShape& shape, const StepCosts& costs) {
  const Timeline timeline = static_order(generated(name, shape), costs);
  const auto formula = find_schedule(name)->bubble(shape);
  REQUIRE(formula.has_value());
  const Time all = std::ssize(timeline.workers) * timeline.makespan;
  CHECK((all - busy(timeline)) * formula->denominator == all * formula->numerator);
}

// Most forwards without their backward at once on a worker: a walk over its list.
int most_in_flight(const Lane& lane) {
  int now = 0, most = 0;
  for (const Op& op : lane.compute) {
    now += op.kind == Kind::F ? 1 : op.kind == Kind::BW || op.kind == Kind::W ? -1 : 0;
    most = std::max(most, now);
  }
  return most;
}

// Chain of random stages: forward and backward times from 1 to 20, one time of hop for all.
struct RandomChain {
  std::vector<Time> f, b;
  RandomChain(int stages, std::mt19937& random) {
    for (int k = 0; k < stages; ++k)
      f.push_back({1 + static_cast<int>(random() % 20)}), b.push_back({1 + static_cast<int>(random() % 20)});
  }
  Time load(std::size_t k) const { return f[k] + b[k]; }
  Time load() const { return std::accumulate(b.begin(), b.end(), std::accumulate(f.begin(), f.end(), Time{0})); }
};

}  // namespace

TEST_CASE("GPipe and 1F1B take (M+K-1)(f+b), a share of (K-1)/(M+K-1) of it idle") {
  for (const char* name : {"gpipe", "1f1b", "eager_1f1b"})
    for (int K = 1; K <= 16; ++K)
      for (int M = 1; M <= 64; ++M)
        for (const Costs cost : kCosts) {
          const ScheduleShape shape{.stages = K, .micro_batches = M};
          const StepCosts costs = equal_stages(shape, cost);
          CHECK(makespan(name, shape, costs) == (M + K - 1) * (cost.f + cost.b));
          if (M % 7 == 1) check_bubble(name, shape, costs);
        }
}

TEST_CASE("bubble shrinks with M: 3/4, 3/7, 3/11 and 3/35 for four stages and 1, 4, 8 and 32 micro-batches") {
  for (const auto& [M, denominator] : {std::pair{1, 4}, {4, 7}, {8, 11}, {32, 35}}) {
    const auto bubble = find_schedule("gpipe")->bubble({.stages = 4, .micro_batches = M});
    CHECK(bubble->numerator == 3);
    CHECK(bubble->denominator == denominator);
  }
}

TEST_CASE("naive model parallelism takes MK(f+b): one worker of K computes at a time") {
  for (int K = 1; K <= 16; ++K)
    for (const int M : {1, 2, 3, 8, 64})
      for (const Costs cost : kCosts) {
        const ScheduleShape shape{.stages = K, .micro_batches = M};
        const StepCosts costs = equal_stages(shape, cost);
        CHECK(makespan("naive", shape, costs) == std::int64_t{M} * K * (cost.f + cost.b));
        check_bubble("naive", shape, costs);
      }
}

TEST_CASE("interleaving divides fill and drain by v: Mv(f+b) + (K-1)(f+b) in times of a chunk") {
  for (int K = 1; K <= 16; ++K)
    for (int v = 2; v <= 4; ++v)
      for (int M = K; M <= 64; M += K)
        for (const Costs cost : kCosts) {
          const ScheduleShape shape{.stages = K, .virtual_stages = v, .micro_batches = M};
          const StepCosts costs = equal_stages(shape, cost);
          CHECK(makespan("interleaved_1f1b", shape, costs) == (M * v + K - 1) * (cost.f + cost.b));
          check_bubble("interleaved_1f1b", shape, costs);
        }
}

// The first micro-batch is back at stage 0 after K(f+c), when that has worked for Mf; backwards mirror it. Where M >= K
// and c = 0 nothing is waited for; with (M-K) min(f, b) >= Kc neither.
TEST_CASE("Looped BFS takes vM(f+b) + (K-1)(f+b+2c), and what it waits between two chunks where M is small") {
  for (int K = 2; K <= 16; ++K)
    for (int v = 2; v <= 4; ++v)
      for (int M = 1; M <= 64; M += K < 5 ? 1 : 5)
        for (const Costs cost : kCosts)
          for (const Time c : {Time{0}, Time{1}, Time{7}}) {
            const ScheduleShape shape{.stages = K, .virtual_stages = v, .micro_batches = M};
            const StepCosts costs = equal_stages(shape, cost, c);
            const Time full = v * M * (cost.f + cost.b) + (K - 1) * (cost.f + cost.b + 2 * c);
            const Time wait =
                std::max(Time{0}, K * (cost.f + c) - M * cost.f) + std::max(Time{0}, K * (cost.b + c) - M * cost.b);
            CHECK(makespan("looped_bfs", shape, costs) == full + (v - 1) * wait);
            if ((M - K) * std::min(cost.f, cost.b) >= K * c) CHECK(wait == Time{0});
            if (c == Time{0} && M >= K) check_bubble("looped_bfs", shape, costs);
          }
}

TEST_CASE("most micro-batches in flight: the walk over each list gives the formula of its schedule") {
  for (int K = 1; K <= 16; ++K)
    for (int M = 1; M <= 64; ++M)
      for (const ScheduleRule& rule : schedules()) {
        const int chunks = rule.chunks > 0 ? rule.chunks : rule.facts.takes_chunks ? 2 + M % 3 : 1;
        if (rule.finds_order && K * chunks * M > 48) continue;  // up to a second each
        const ScheduleShape shape{
            .stages = K, .virtual_stages = chunks, .micro_batches = M, .chunk_order = rule.chunk_order};
        if (!rule.refusal(shape).empty() || rule.facts.uses_partner) continue;  // tests/sim/partner_moves_test.cpp
        const Schedule schedule = rule.generate(shape);
        for (int k = 0; k < K; ++k) {
          const int most = most_in_flight(schedule.positions[k]);
          if (const auto peak = rule.peak_in_flight(shape, k))
            CHECK(most == peak);
          else
            CHECK(most <= K * chunks);  // made for as much as 1F1B holds
          const int v = shape.virtual_stages;
          if (rule.name == "gpipe") CHECK(most == M);
          if (rule.name == "1f1b" || rule.name == "pipedream") CHECK(most == std::min(M, K - k));
          if (rule.name == "eager_1f1b") CHECK(most == std::min(M, 2 * (K - k) - 1));
          if (rule.name == "zb_h1") CHECK(most == std::min(M, K));
          if (rule.name == "zb_h2") CHECK(most == std::min(M, 2 * K - 1));
          if (rule.name == "moe_overlap_1f1b") CHECK(most == std::min(M * v, 2 * (K - k - 1) + (v - 1) * K + 2));
          if (rule.name == "chimera" && M >= K) CHECK(most == K / 2 + 1 + std::min(k, K - 1 - k));
          if (rule.name == "interleaved_zb") CHECK(most == std::min(M * v, (v - 1) * M / std::max(1, M / K) + K));
          if (rule.name == "zbv") CHECK(most == std::min({2 * K, 2 * M, M + k + 1}));
          if (rule.name == "v_half") CHECK(most == std::min({2 * M, M + k + 1, (K + 2) / 2 * 2}));
          if (rule.name == "v_zb") CHECK((M < 2 * K || most == 2 * K));
          if (rule.name == "pipedream_2bw") CHECK(most == std::min(M, K - k));
          if (rule.name == "gems") CHECK(most == 1);
          if (rule.name == "v_min") CHECK(most <= std::min({2 * M, M + k + 1, (K + 4) / 3 * 2}));
          if (rule.name == "v_min" && K % 3 != 2) CHECK(most == std::min({2 * M, M + k + 1, (K + 4) / 3 * 2}));
          if (rule.name == "v_1f1b") CHECK(most == std::min({2 * M, M + k + k / 2 + 1, (2 * K / 3 + 1) * 2}));
          if (rule.name == "dualpipe") CHECK(most == K + 1);
          if (rule.name == "dualpipev") CHECK(most == 2 * K + 1);
          if (rule.name == "interleaved_1f1b") CHECK(most == std::min(M * v, 2 * (K - k - 1) + (v - 1) * K + 1));
          if (rule.name == "looped_bfs") CHECK(most == v * M);
          if (rule.name == "naive" || rule.name == "data_parallel") CHECK(most == 1);
        }
      }
}

TEST_CASE("GPipe in closed form, any stages and hops: sum(f+b) + 2 sum c + (M-1)(max f + max b)") {
  std::mt19937 random(1811'06965);
  for (int run = 0; run < 500; ++run) {
    const int K = 1 + static_cast<int>(random() % 8), M = 1 + static_cast<int>(random() % 32);
    const Time c{static_cast<int>(random() % 10)};
    const RandomChain chain(K, random);
    const ScheduleShape shape{.stages = K, .micro_batches = M};
    CHECK(makespan("gpipe", shape, plain_costs(shape, chain.f, chain.b, c)) ==
          chain.load() + 2 * (K - 1) * c +
              (M - 1) * (*std::max_element(chain.f.begin(), chain.f.end()) +
                         *std::max_element(chain.b.begin(), chain.b.end())));
  }
}

TEST_CASE("1F1B exposes its hops: K more micro-batches take K(f+b) + 2(K-1)c more, a cycle of f+b+2(K-1)c/K") {
  for (int K = 1; K <= 16; ++K)
    for (const Costs cost : kCosts)
      for (const Time c : {Time{0}, Time{1}, Time{2}, Time{7}}) {
        const auto at = [&](int M) {
          const ScheduleShape shape{.stages = K, .micro_batches = M};
          return makespan("1f1b", shape, equal_stages(shape, cost, c));
        };
        CHECK(at(5 * K) - at(4 * K) == K * (cost.f + cost.b) + 2 * (K - 1) * c);
      }
}

TEST_CASE("hops hidden and exposed, K = 8, M = 64, f+b = 3, c = 1: eager 1F1B 227, GPipe 227, 1F1B 337") {
  const ScheduleShape shape{.stages = 8, .micro_batches = 64};
  const StepCosts costs = equal_stages(shape, {{1}, {2}}, Time{1});
  CHECK(makespan("eager_1f1b", shape, costs) == Time{227});  // 71 * 3 + 2 * 7
  CHECK(makespan("gpipe", shape, costs) == Time{227});       // 71 * 3 + 2 * 7
  CHECK(makespan("1f1b", shape, costs) == Time{337});
}

TEST_CASE("one micro-batch runs as sequential model parallelism, its hops there and back") {
  std::mt19937 random(9);
  for (int run = 0; run < 200; ++run) {
    const int K = 1 + static_cast<int>(random() % 16);
    const Time c{static_cast<int>(random() % 10)};
    const RandomChain chain(K, random);
    const ScheduleShape shape{.stages = K, .micro_batches = 1};
    for (const char* name : {"naive", "gpipe", "1f1b", "eager_1f1b", "pipedream"})
      CHECK(makespan(name, shape, plain_costs(shape, chain.f, chain.b, c)) == chain.load() + 2 * (K - 1) * c);
  }
}

TEST_CASE("one stage is gradient accumulation: M(f+b), whatever the schedule") {
  for (const int M : {1, 2, 7, 64})
    for (const Costs cost : kCosts)
      for (const ScheduleRule& rule : schedules()) {
        ScheduleShape shape{.stages = 1, .micro_batches = M};
        const int v = rule.chunks > 0 ? rule.chunks : rule.facts.takes_chunks ? 3 : 1;
        shape.virtual_stages = v, shape.chunk_order = rule.chunk_order;
        if (!rule.refusal(shape).empty()) continue;  // dualpipe has two stages or more
        CHECK(static_order_makespan(rule.generate(shape), equal_stages(shape, cost)) == M * v * (cost.f + cost.b));
      }
}

TEST_CASE("no schedule beats the bound of any of its stages: way there, M micro-batches, way back") {
  std::mt19937 random(5);
  for (int run = 0; run < 300; ++run) {
    const int K = 1 + static_cast<int>(random() % 8), M = 1 + static_cast<int>(random() % 40);
    const Time c{static_cast<int>(random() % 10)};
    const RandomChain chain(K, random);
    const ScheduleShape shape{.stages = K, .micro_batches = M};
    Time bound{0}, way{0};
    for (std::size_t k = 0; k < chain.f.size(); ++k) {
      bound = std::max(bound, way + M * chain.load(k));
      way += chain.load(k) + 2 * c;
    }
    for (const char* name : {"naive", "gpipe", "1f1b", "eager_1f1b", "pipedream"})
      CHECK(makespan(name, shape, plain_costs(shape, chain.f, chain.b, c)) >= bound);
  }
}

TEST_CASE("1F1B does not beat its windows: K-k micro-batches in flight go from stage k to the end and back") {
  // LB2 = max over k of head_k + ceil(M / (K-k)) * (the round trip from k to the last stage), head_k the way there.
  std::mt19937 random(6);
  for (int run = 0; run < 300; ++run) {
    const int K = 1 + static_cast<int>(random() % 8), M = 1 + static_cast<int>(random() % 40);
    const Time c{static_cast<int>(random() % 10)};
    const RandomChain chain(K, random);
    const ScheduleShape shape{.stages = K, .micro_batches = M};
    const Time found = makespan("1f1b", shape, plain_costs(shape, chain.f, chain.b, c));
    Time head{0};
    for (int k = 0; k < K; ++k) {
      Time round_trip = 2 * (K - 1 - k) * c;
      for (int j = k; j < K; ++j)
        round_trip += chain.load(static_cast<std::size_t>(j));
      CHECK(found >= head + (M + K - k - 1) / (K - k) * round_trip);
      head += chain.load(static_cast<std::size_t>(k)) + 2 * c;
    }
  }
}

TEST_CASE("recomputation costs the pipeline M times r, the fill and the drain nothing: M(f+r+b) + (K-1)(f+b)") {
  // plain_costs makes r = f. The last stage cannot hide its recomputations; the others fit theirs before it is their
  // turn. Keeping the last micro-batch saves one r.
  for (const char* name : {"gpipe", "1f1b"})
    for (int K = 1; K <= 16; ++K)
      for (int M = 1; M <= 64; ++M)
        for (const Costs cost : kCosts) {
          ScheduleShape shape{.stages = K, .micro_batches = M};
          shape.recompute.assign(static_cast<std::size_t>(K), true);
          const Time f = cost.f, b = cost.b, r = cost.f;
          const Time all = M * (f + r + b) + (K - 1) * (f + b);
          CHECK(makespan(name, shape, equal_stages(shape, cost)) == all);
          shape.recompute_except_last = true;
          CHECK(makespan(name, shape, equal_stages(shape, cost)) == all - r);
        }
}

TEST_CASE("all times times a: the makespan times a") {
  std::mt19937 random(12);
  for (int run = 0; run < 100; ++run) {
    const int K = 1 + static_cast<int>(random() % 6), M = K * (1 + static_cast<int>(random() % 6));
    const Time c{static_cast<int>(random() % 10)};
    for (const ScheduleRule& rule : schedules()) {
      ScheduleShape shape{.stages = K, .micro_batches = M};
      if (rule.facts.takes_chunks && rule.chunks == 0) shape.virtual_stages = 2;
      if (!rule.refusal(shape).empty()) continue;
      RandomChain chain(shape.chunks(), random);
      for (Time& time : chain.b)  // even, so that both halves of a split backward are whole
        time = 2 * time;
      const Schedule schedule = rule.generate(shape);
      const Time once = static_order_makespan(schedule, plain_costs(shape, chain.f, chain.b, c));
      for (auto* times : {&chain.f, &chain.b})
        for (Time& time : *times)
          time = 1000 * time;
      CHECK(static_order_makespan(schedule, plain_costs(shape, chain.f, chain.b, 1000 * c)) == 1000 * once);
    }
  }
}

TEST_CASE("busy time is conserved: the sum over all workers is the sum of all ops, whatever the order") {
  std::mt19937 random(13);
  for (int run = 0; run < 100; ++run) {
    const int K = 1 + static_cast<int>(random() % 6), M = 1 + static_cast<int>(random() % 20);
    const RandomChain chain(K, random);
    const ScheduleShape shape{.stages = K, .micro_batches = M};
    for (const char* name : {"naive", "gpipe", "1f1b", "eager_1f1b", "zb_h1", "zb_h2", "pipedream"})
      CHECK(busy(static_order(generated(name, shape), plain_costs(shape, chain.f, chain.b, Time{3}))) ==
            M * chain.load());
  }
}

TEST_CASE("PipeDream's steady state has no bubble: with free messages one more micro-batch takes its slowest stage") {
  std::mt19937 random(19);
  for (int run = 0; run < 60; ++run) {
    const int K = 1 + static_cast<int>(random() % 6);
    const RandomChain chain(K, random);
    Time slowest{0};
    for (std::size_t k = 0; k < chain.f.size(); ++k)
      slowest = std::max(slowest, chain.load(k));
    const auto at = [&](int M) {
      const ScheduleShape shape{.stages = K, .micro_batches = M};
      return makespan("pipedream", shape, plain_costs(shape, chain.f, chain.b, Time{0}));
    };
    CHECK(at(1001) - at(1000) == slowest);
  }
}

}  // namespace pipewright::tests
