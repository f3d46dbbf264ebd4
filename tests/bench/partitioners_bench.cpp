// How long the searches over partitions of a chain take. Not part of `meson test`: run
// build/tests/bench/bench_partitioners.
#include <cstdint>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "planner/partitioners/suffix_dp.hpp"

namespace pipewright {
namespace {

std::int64_t draw(std::mt19937& random, std::int64_t least, std::int64_t most) {
  return least + static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(most - least + 1));
}

// Layers of 5 to 45 ms, 100 MB to 1 GB of state, 50 to 350 MB of stash; links of 25 GB/s, devices of 24 GB, which hold
// about a third of the chain.
SuffixProblem random_chain(int layers, int devices, std::vector<int> replicas) {
  std::mt19937 random(1);
  SuffixProblem problem;
  for (int i = 0; i < layers; ++i) {
    problem.compute.push_back({draw(random, 5'000'000, 45'000'000)});
    problem.resident.push_back({draw(random, 100'000'000, 1'000'000'000)});
    problem.gradients.push_back({problem.resident.back().value / 8});
    problem.stash.push_back({draw(random, 50'000'000, 350'000'000)});
    problem.boundary.push_back({draw(random, 5'000'000, 50'000'000)});
  }
  problem.capacity = {24'000'000'000};
  problem.bandwidth = {25e9};
  problem.devices = devices;
  problem.replicas = std::move(replicas);
  return problem;
}

void suffix(benchmark::State& state, const SuffixProblem& problem) {
  SuffixAnswer answer;
  for (auto _ : state)
    answer = suffix_dp(problem);
  state.counters["states"] = static_cast<double>(answer.states);
  state.counters["stages"] = static_cast<double>(answer.stages.size());
}

void any_replicas(benchmark::State& state) {
  suffix(state, random_chain(96, 128, {}));
}
BENCHMARK(any_replicas)->Unit(benchmark::kMillisecond);

void powers_of_two(benchmark::State& state) {
  suffix(state, random_chain(96, 128, {1, 2, 4, 8, 16, 32, 64, 128}));
}
BENCHMARK(powers_of_two)->Unit(benchmark::kMillisecond);

// Exactly 32 stages, of 1, 2, 4, 8 or 16 replicas.
void thirty_two_stages(benchmark::State& state) {
  SuffixProblem problem = random_chain(96, 128, {1, 2, 4, 8, 16});
  problem.stages = 32;
  suffix(state, problem);
}
BENCHMARK(thirty_two_stages)->Unit(benchmark::kMillisecond);

// No layer fits on a device, which takes a second search to say by how much.
void nothing_fits(benchmark::State& state) {
  SuffixProblem problem = random_chain(96, 128, {});
  problem.capacity = {100'000'000};
  suffix(state, problem);
}
BENCHMARK(nothing_fits)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright

BENCHMARK_MAIN();
