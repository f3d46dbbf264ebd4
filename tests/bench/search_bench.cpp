// How long `plan` searches: everything open, reading the scenario left out. Not part of `meson test`: run
// build/tests/bench/bench_search.
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "io/read/read_scenario.hpp"
#include "planner/search/search.hpp"

namespace pipewright::tests {
namespace {

const std::string kSource = PIPEWRIGHT_SOURCE;

void plan(benchmark::State& state, const char* file, std::vector<std::string> set, double gap) {
  const Scenario scenario =
      read_scenario(kSource + "/scenarios/" + file, {.set = std::move(set), .config_path = {kSource + "/configs"}});
  SearchAnswer answer;
  for (auto _ : state)
    answer = std::get<SearchAnswer>(search(scenario, {.gap = gap, .time_limit = 600}));
  state.counters["layouts"] = static_cast<double>(answer.layouts);
  state.counters["simulations"] = static_cast<double>(answer.simulations);
  state.counters["gap_percent"] = 100 * answer.gap();
}
BENCHMARK_CAPTURE(plan, quickstart, "quickstart.yaml", {"plan=auto"}, 0.01)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, gpipe_transformer_48, "gpipe/transformer-48-k8-m32.yaml",
                  {"plan=auto", "training.micro_batch_size=auto", "training.micro_batches=null",
                   "training.global_batch_size=32"},
                  0.01)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, llama3_70b_64, "megatron/llama3-70b-64xh100.yaml", {}, 0.01)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, llama3_70b_4096, "megatron/llama3-70b-64xh100.yaml",
                  {"cluster.nodes=512", "training.global_batch_size=2048"}, 0.01)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, llama3_70b_layout, "megatron/llama3-70b-layout.yaml", {}, 0.0)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright::tests

BENCHMARK_MAIN();
