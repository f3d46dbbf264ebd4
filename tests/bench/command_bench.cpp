// How long a whole question takes inside the process, from YAML to the printed table: `pipewright simulate` less the
// start of the program. Not part of `meson test`: run build/tests/bench/bench_command.
#include <string>

#include <benchmark/benchmark.h>

#include "core/check.hpp"
#include "io/read/read_scenario.hpp"
#include "io/writers/writers.hpp"
#include "planner/answer.hpp"
#include "tests/bench/limits.hpp"

namespace pipewright::tests {
namespace {

ReadOptions options(std::vector<std::string> set) {
  return {.set = std::move(set), .config_path = {PIPEWRIGHT_SOURCE "/configs"}};
}

void read(benchmark::State& state, const char* file) {
  for (auto _ : state)
    benchmark::DoNotOptimize(read_scenario(std::string(PIPEWRIGHT_SOURCE "/scenarios/") + file, options({})));
  report_rate(state, "scenarios", 1, 0);
}
BENCHMARK_CAPTURE(read, quickstart, "quickstart.yaml")->Unit(benchmark::kMillisecond);

void simulate_command(benchmark::State& state, const char* file, std::vector<std::string> set) {
  double ops = 0;
  for (auto _ : state) {
    const Scenario scenario = read_scenario(std::string(PIPEWRIGHT_SOURCE "/scenarios/") + file, options(set));
    const auto found = answer(scenario);
    const Answer* const priced = std::get_if<Answer>(&found);
    PP_CHECK(priced != nullptr);
    benchmark::DoNotOptimize(terminal_report(*priced, {}));
    ops = 0;
    for (const LaneTimes& worker : priced->timeline.workers)
      ops += static_cast<double>(worker.compute.size());
  }
  report_rate(state, "ops", ops, 0);
}
BENCHMARK_CAPTURE(simulate_command, quickstart, "quickstart.yaml", {})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_command, K64_M1024, "what_if/k64-m1024.yaml", {})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright::tests

BENCHMARK_MAIN();
