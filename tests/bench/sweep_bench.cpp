// How many points of a sweep a core prices per second, from the parsed file to the row: K = 8, M = 32 of two schedules,
// in plans whose layer times come from operators and from the file. Not part of `meson test`: run
// build/tests/bench/bench_sweep.
#include <filesystem>
#include <memory>
#include <string>

#include <benchmark/benchmark.h>

#include "core/check.hpp"
#include "io/read/read_sweep.hpp"
#include "io/store/sweep_store.hpp"
#include "planner/what_if/sweep.hpp"

namespace pipewright::tests {
namespace {

// 1000 points of which the last key, the one that changes from point to point, belongs to the section named.
void points(benchmark::State& state, const char* file) {
  const SweepFile asked(std::string(PIPEWRIGHT_SOURCE "/tests/bench/") + file,
                        {.set = {}, .config_path = {PIPEWRIGHT_SOURCE "/configs"}});
  const auto source = [&]() -> SweepPoints {
    const auto reader = std::make_shared<PointReader>(asked.base());
    return {.scenario = [&asked, reader](std::int64_t point) -> const Scenario& {
              return reader->read(asked.changes(point));
            },
            .magnitude = magnitude_under};
  };
  double rows = 0;
  for (auto _ : state) {
    const Sweep result = sweep(asked.question(), {.jobs = 1, .points = source});
    for (const SweepRow& row : result.rows)
      PP_CHECK(row.has_figures());
    rows = static_cast<double>(result.rows.size());
  }
  state.counters["scenarios"] =
      benchmark::Counter(rows * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(points, plan_and_cluster, "sweep-plan.yaml")
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();
BENCHMARK_CAPTURE(points, model, "sweep-model.yaml")
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

// The same with every row kept in a database, committed as the command does, every 100 ms at most.
void points_kept(benchmark::State& state, const char* file) {
  const SweepFile asked(std::string(PIPEWRIGHT_SOURCE "/tests/bench/") + file,
                        {.set = {}, .config_path = {PIPEWRIGHT_SOURCE "/configs"}});
  const std::string path = (std::filesystem::temp_directory_path() / "pipewright-bench-sweep.db").string();
  double rows = 0;
  for (auto _ : state) {
    std::filesystem::remove(path);
    SweepStore store = SweepStore::for_sweep(path, asked.question(), identity_of(asked, ""));
    price_points(asked.question(), {.jobs = 1,
                                    .points = [&]() -> SweepPoints {
                                      const auto reader = std::make_shared<PointReader>(asked.base());
                                      return {.scenario = [&asked, reader](std::int64_t point) -> const Scenario& {
                                                return reader->read(asked.changes(point));
                                              },
                                              .magnitude = magnitude_under};
                                    },
                                    .next = in_turn(points_of({}, asked.question().points()), 1),
                                    .found = [&](const std::vector<SweepFinding>& news) { store.keep(news); }});
    rows = static_cast<double>(store.count());
  }
  std::filesystem::remove(path);
  state.counters["scenarios"] =
      benchmark::Counter(rows * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(points_kept, plan_and_cluster, "sweep-plan.yaml")
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
}  // namespace pipewright::tests

BENCHMARK_MAIN();
