// How long it takes to price models built from operators: what a search over shapes and plans costs per candidate,
// before any schedule is simulated. Not part of `meson test`: run build/tests/bench/bench_pricing.
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "core/model/families/table.hpp"
#include "tests/bench/limits.hpp"

namespace pipewright::tests {
namespace {

constexpr std::int64_t kHiddens = 25, kDepths = 10, kSizes = 10;
constexpr int kDegrees[] = {1, 2, 4, 8};
constexpr std::int64_t kConfigurations = kHiddens * kDepths * kSizes * static_cast<std::int64_t>(std::size(kDegrees));

Scenario on_a_node() {
  Scenario scenario;
  scenario.cost = CostSourceKind::Roofline;
  scenario.training.precision = Precision::Bf16;
  scenario.training.optimizer = Optimizer::Adam;
  Cluster& cluster = scenario.cluster;
  cluster.devices_per_node = 8;
  cluster.links = {.kind = LinkKind::Nvswitch, .bandwidth = Bandwidth{450e9}, .latency = Time{2000}};
  Device& device = cluster.device;
  device.name = "X100";
  device.peak[Precision::Bf16] = FlopRate{989.4e12};
  device.memory_bandwidth = Bandwidth{3350e9};
  for (auto& each : device.efficiency) {
    each.emplace();
    each->curve = {{1e6, 0.1}, {1e9, 0.3}, {1e11, 0.6}};
  }
  return scenario;
}

// Hidden 1024 h, heads of 128 features (8 h of them), layers 8 d; 2048 tokens.
Model gpt(std::int64_t hidden, std::int64_t depth) {
  const auto text = [](std::int64_t value) { return Placed<std::string>{std::to_string(value), {}}; };
  return build_family(*find_family("gpt"),
                      {{"hidden", text(1024 * hidden)}, {"heads", text(8 * hidden)}, {"layers", text(8 * depth)}}, {});
}

void price(Scenario& scenario, int degree, std::int64_t samples) {
  scenario.plan.tensor_parallel.value = degree;
  settle(scenario.model, weight_bytes(scenario.training.precision), {degree, false});
  benchmark::DoNotOptimize(CostModel(scenario).layers(samples));
}

// 25 hidden sizes x 10 depths x 10 micro-batch sizes x 4 degrees of tensor parallelism, every model built anew.
void build_and_price(benchmark::State& state) {
  Scenario scenario = on_a_node();
  for (auto _ : state)
    for (std::int64_t hidden = 1; hidden <= kHiddens; ++hidden)
      for (std::int64_t depth = 1; depth <= kDepths; ++depth)
        for (std::int64_t samples = 1; samples <= kSizes; ++samples)
          for (const int degree : kDegrees) {
            scenario.model = gpt(hidden, depth);
            price(scenario, degree, samples);
          }
  report_rate(state, "configurations", static_cast<double>(kConfigurations), 0);
}
BENCHMARK(build_and_price)->Unit(benchmark::kMillisecond);

// The same with each of the 250 models built once, as a planner does.
void price_10000(benchmark::State& state) {
  Scenario scenario = on_a_node();
  for (auto _ : state)
    for (std::int64_t hidden = 1; hidden <= kHiddens; ++hidden)
      for (std::int64_t depth = 1; depth <= kDepths; ++depth) {
        scenario.model = gpt(hidden, depth);
        for (std::int64_t samples = 1; samples <= kSizes; ++samples)
          for (const int degree : kDegrees)
            price(scenario, degree, samples);
      }
  report_rate(state, "configurations", static_cast<double>(kConfigurations), 0);
}
BENCHMARK(price_10000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright::tests

BENCHMARK_MAIN();
