// How long it takes to plan PipeDream's published profiles: stages, replicas and places on 16 devices, ranked by
// simulation; and cuts over all down-sets of their graphs. Needs the profiles (PIPEWRIGHT_TEST_DATA names the folder
// that holds pipedream-profiles/). Not part of `meson test`: run build/tests/bench/bench_profiles.
#include <cstdlib>
#include <filesystem>
#include <string>

#include <benchmark/benchmark.h>

#include "io/import/pipedream.hpp"
#include "planner/graph_cut.hpp"
#include "planner/replicated.hpp"

namespace pipewright::tests {
namespace {

std::optional<Model> profile(benchmark::State& state, const std::string& name, std::int64_t batch) {
  const char* data = std::getenv("PIPEWRIGHT_TEST_DATA");
  const std::string file = std::string(data ? data : "../shared/data") + "/pipedream-profiles/" + name + ".txt";
  if (std::filesystem::exists(file)) return read_pipedream_profile(file, batch);
  state.SkipWithError(("no " + file + "; PIPEWRIGHT_TEST_DATA names the folder above").c_str());
  return std::nullopt;
}

// 16 GiB a device, PCIe of 10 GB/s inside a node, 1.25 GB/s between.
void plan(benchmark::State& state, const char* name, std::int64_t batch, int nodes, int devices) {
  const std::optional<Model> model = profile(state, name, batch);
  if (!model) return;
  Scenario scenario;
  scenario.model = *model;
  Cluster& cluster = scenario.cluster;
  cluster.nodes = nodes, cluster.devices_per_node = devices;
  cluster.links = {.kind = LinkKind::Pcie, .bandwidth = Bandwidth{10e9}};
  cluster.network = Network{};
  cluster.network->bandwidth = Bandwidth{1.25e9};
  cluster.device.memory = Bytes{std::int64_t{16} << 30};
  scenario.training.optimizer = Optimizer::Momentum;
  const CostModel cost(scenario);
  Plan shell;
  shell.schedule = "pipedream";
  shell.micro_batch_size = shell.last_micro_batch_size = batch;
  shell.micro_batches = 64, shell.global_batch_size = 64 * batch;
  ReplicatedAnswer answer;
  for (auto _ : state)
    answer = replicated_plans(shell, cost);
  state.counters["simulated"] = static_cast<double>(answer.simulated);
  state.counters["gap_percent"] = 100 * answer.gap();
}
BENCHMARK_CAPTURE(plan, vgg16_flat, "vgg16", 64, 16, 1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, resnet50_2x8, "resnet50", 128, 2, 8)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, gnmt8_4x4, "gnmt", 32, 4, 4)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, gnmt16_4x4, "gnmt_large", 128, 4, 4)->Unit(benchmark::kMillisecond);

void cut(benchmark::State& state, const char* name, std::int64_t batch) {
  const std::optional<Model> model = profile(state, name, batch);
  if (!model) return;
  GraphProblem problem;
  for (const Layer& layer : model->layers)
    problem.compute.push_back(*layer.forward + *layer.backward);
  problem.replicas.assign(16, 1);
  std::optional<GraphCut> answer;
  for (auto _ : state)
    answer = graph_cut(*model, problem);
  state.counters["down_sets"] = static_cast<double>(answer->down_sets);
}
BENCHMARK_CAPTURE(cut, resnet50, "resnet50", 128)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(cut, gnmt16, "gnmt_large", 128)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(cut, inception_v3, "inception_v3", 128)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright::tests

BENCHMARK_MAIN();
