// The steady state of asynchronous pipelines: closed forms, a second opinion (maximum cycle ratio), and the law that a
// period more micro-batches take exactly one growth longer.
#include "sim/steady_state.hpp"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/howard_cycle_ratio.hpp>
#include <doctest/doctest.h>

#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"

namespace pipewright::tests {
namespace {

std::vector<Time> times(const std::vector<std::int64_t>& values) {
  std::vector<Time> all;
  for (const std::int64_t value : values)
    all.push_back({value});
  return all;
}

struct Pipeline {
  std::vector<std::int64_t> forward, backward;
  std::int64_t hop = 0;
  std::vector<int> replicas;
};

ScheduleShape shape_of(const Pipeline& pipeline, int micro_batches) {
  return {.stages = static_cast<int>(pipeline.forward.size()),
          .micro_batches = micro_batches,
          .replicas = pipeline.replicas};
}

Time makespan_of(const Pipeline& pipeline, int micro_batches) {
  const ScheduleShape shape = shape_of(pipeline, micro_batches);
  return static_order_makespan(find_schedule("pipedream")->generate(shape),
                               plain_costs(shape, times(pipeline.forward), times(pipeline.backward), {pipeline.hop}));
}

SteadyState steady_of(const Pipeline& pipeline, int micro_batches = 0) {
  const ScheduleShape shape =
      shape_of(pipeline, micro_batches > 0 ? micro_batches : micro_batches_for_steady_state(shape_of(pipeline, 1)));
  const Schedule schedule = find_schedule("pipedream")->generate(shape);
  const StepCosts costs = plain_costs(shape, times(pipeline.forward), times(pipeline.backward), {pipeline.hop});
  return steady_state(schedule, costs, static_order(schedule, costs));
}

double cycle_time(const SteadyState& steady) {
  return static_cast<double>(steady.growth.value) / static_cast<double>(steady.micro_batches);
}

// Cycle time of a straight asynchronous 1F1B pipeline by Howard's algorithm: no simulation. Stage k keeps W = K - k
// micro-batches in flight, so in its list forward n + W - 1 comes just before backward n, and backward n - W just
// before forward n. An edge carries the time from one end to the next and a number of micro-batches ("tokens") between
// the two; backwards are numbered from W - 1 on, so that no count is negative:
//     F_k -> B_k 0,  B_k -> F_k 1,  F_k -> F_{k+1} 0,  B_{k+1} -> B_k  W_k - W_{k+1} = 1
double cycle_time_by_howard(const Pipeline& pipeline) {
  using namespace boost;
  using Graph = adjacency_list<vecS, vecS, directedS, no_property,
                               property<edge_weight_t, double, property<edge_weight2_t, double>>>;
  const std::size_t K = pipeline.forward.size();
  Graph graph(2 * K);
  const auto join = [&](std::size_t from, std::size_t to, std::int64_t time, int tokens) {
    const auto edge = add_edge(from, to, graph).first;
    put(edge_weight, graph, edge, static_cast<double>(time));
    put(edge_weight2, graph, edge, tokens);
  };
  for (std::size_t k = 0; k < K; ++k) {
    const std::size_t F = 2 * k, B = 2 * k + 1;
    join(F, B, pipeline.backward[k], 0);
    join(B, F, pipeline.forward[k], 1);
    if (k + 1 == K) continue;
    join(F, F + 2, pipeline.hop + pipeline.forward[k + 1], 0);
    join(B + 2, B, pipeline.hop + pipeline.backward[k], 1);
  }
  return maximum_cycle_ratio(graph, get(vertex_index, graph), get(edge_weight, graph), get(edge_weight2, graph));
}

std::uint32_t random(std::uint32_t& state, std::uint32_t below) {
  state = state * 1664525u + 1013904223u;
  return (state >> 8) % below;
}

}  // namespace

// [PipeDream19] section 3.2: in the steady state every worker of a balanced straight pipeline is always busy.
TEST_CASE("equal stages and free messages: one micro-batch every f + b, all workers always busy") {
  for (const std::size_t K : {1u, 2u, 4u, 8u}) {
    const SteadyState steady = steady_of({std::vector<std::int64_t>(K, 10), std::vector<std::int64_t>(K, 20)});
    CHECK(steady.exact);
    CHECK(steady.micro_batches == 1);
    CHECK(steady.growth == Time{30});
    CHECK(steady.busy == Time{30} * static_cast<std::int64_t>(K));
  }
}

// The window cycle: K micro-batches go round all stages and 2 (K - 1) hops before the next K may:
//     lambda = f + b + 2 (K - 1) c / K,   compared as K lambda, in whole ns
TEST_CASE("with in-flight depth K - k every hop is exposed: f + b + 2 (K - 1) c / K") {
  for (const std::int64_t K : {2, 3, 4, 8}) {
    const auto stages = static_cast<std::size_t>(K);
    const SteadyState steady =
        steady_of({std::vector<std::int64_t>(stages, 10), std::vector<std::int64_t>(stages, 20), 3});
    CHECK(steady.exact);
    CHECK(steady.growth.value * K == steady.micro_batches * (30 * K + 2 * (K - 1) * 3));
  }
}

TEST_CASE("unequal stages and free messages: the slowest stage sets the pace") {
  const SteadyState steady = steady_of({{10, 14, 9}, {20, 25, 8}});
  CHECK(steady.exact);
  CHECK(cycle_time(steady) == 39);
  CHECK(steady.busy.value == steady.micro_batches * (30 + 39 + 17));
}

TEST_CASE("random pipelines: the period found is Howard's maximum cycle ratio, and the next period takes as long") {
  std::uint32_t state = 7;
  int exact = 0;
  constexpr int kTrials = 120;
  for (int trial = 0; trial < kTrials; ++trial) {
    Pipeline pipeline;
    const std::uint32_t K = 1 + random(state, 12);
    for (std::uint32_t k = 0; k < K; ++k) {
      pipeline.forward.push_back(50 + random(state, 100));
      pipeline.backward.push_back(100 + random(state, 200));
    }
    pipeline.hop = random(state, 40);
    const SteadyState steady = steady_of(pipeline);
    CAPTURE(trial);
    CHECK(cycle_time(steady) == doctest::Approx(cycle_time_by_howard(pipeline)).epsilon(steady.exact ? 1e-9 : 1e-2));
    if (!steady.exact) continue;
    ++exact;
    const auto M = static_cast<int>(steady.simulated), p = static_cast<int>(steady.micro_batches);
    CHECK(makespan_of(pipeline, M + p) - makespan_of(pipeline, M) == steady.growth);
  }
  MESSAGE(exact << " of " << kTrials << " random pipelines have an exact period within the micro-batches simulated");
  CHECK(exact * 10 >= kTrials * 9);
}

// 15-1: the first stage does a micro-batch of 450 on 15 workers, 30 each on average; the last needs 40.
TEST_CASE("15-1 with a slower last stage goes at the pace of the last stage, in periods of 15 micro-batches") {
  const SteadyState steady = steady_of({{150, 10}, {300, 30}, 0, {15, 1}});
  CHECK(steady.exact);
  CHECK(steady.micro_batches == 15);
  CHECK(steady.growth == Time{15 * 40});
  CHECK(steady.busy == Time{15 * (450 + 40)});
}

// The other way round: every replica is always busy, 450 per 15 micro-batches; the last stage has time to spare.
TEST_CASE("15-1 with a slower first stage goes at a fifteenth of its time") {
  const SteadyState steady = steady_of({{150, 5}, {300, 10}, 0, {15, 1}});
  CHECK(steady.exact);
  CHECK(steady.micro_batches == 15);
  CHECK(steady.growth == Time{450});
}

TEST_CASE("2-1-1 with balanced stages: the period is a multiple of 2 and no worker can be faster") {
  const Pipeline pipeline{{20, 10, 10}, {40, 20, 20}, 0, {2, 1, 1}};
  const SteadyState steady = steady_of(pipeline);
  CHECK(steady.exact);
  CHECK(steady.micro_batches % 2 == 0);
  CHECK(steady.growth.value >= 30 * steady.micro_batches);  // 60 / 2 on stage 0, 30 on the others
  const auto M = static_cast<int>(steady.simulated), p = static_cast<int>(steady.micro_batches);
  CHECK(makespan_of(pipeline, M + p) - makespan_of(pipeline, M) == steady.growth);
}

TEST_CASE("random replicated pipelines: the next period takes exactly one growth longer") {
  std::uint32_t state = 11;
  int exact = 0;
  for (int trial = 0; trial < 60; ++trial) {
    Pipeline pipeline;
    const std::uint32_t K = 1 + random(state, 4);
    for (std::uint32_t k = 0; k < K; ++k) {
      pipeline.replicas.push_back(1 + static_cast<int>(random(state, 4)));
      pipeline.forward.push_back(50 + random(state, 100));
      pipeline.backward.push_back(100 + random(state, 200));
    }
    pipeline.hop = random(state, 30);
    const SteadyState steady = steady_of(pipeline);
    if (!steady.exact) continue;
    ++exact;
    const auto M = static_cast<int>(steady.simulated), p = static_cast<int>(steady.micro_batches);
    CHECK(makespan_of(pipeline, M + p) - makespan_of(pipeline, M) == steady.growth);
  }
  CHECK(exact >= 50);
}

TEST_CASE("a run too short for a steady part gives its own average and says that it is not exact") {
  const SteadyState steady = steady_of({{10, 10}, {20, 20}}, 2);
  CHECK(!steady.exact);
  CHECK(steady.micro_batches == 2);
  CHECK(steady.growth == Time{90});  // (M + K - 1)(f + b)
  CHECK(steady.busy == Time{120});
}

TEST_CASE("the run for the steady state stays bounded and deals whole rounds to all replicas") {
  CHECK(micro_batches_for_steady_state({.stages = 64}) <= 4096);
  CHECK(micro_batches_for_steady_state({.stages = 2, .replicas = {15, 1}}) % 15 == 0);
  CHECK(micro_batches_for_steady_state({.stages = 3, .replicas = {7, 11, 13}}) % 1001 == 0);
  CHECK(micro_batches_for_steady_state({.stages = 3, .replicas = {101, 103, 107}}) <= 8192);
}

}  // namespace pipewright::tests
