// How long the searches over partitions of a chain take. Not part of `meson test`: run
// build/tests/bench/bench_partitioners.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "planner/partitioners/exact.hpp"
#include "planner/partitioners/min_max.hpp"
#include "planner/partitioners/suffix_dp.hpp"

namespace pipewright::tests {
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

// The same chain on several classes, each half as fast as the one before it and with three quarters of its memory.
SuffixProblem on_classes(const std::vector<int>& devices, int devices_per_node) {
  SuffixProblem problem = random_chain(96, devices.front(), {});
  problem.devices_per_node = devices_per_node, problem.inside = {100e9};
  SuffixClass last{.compute = problem.compute, .capacity = problem.capacity};
  for (std::size_t c = 1; c < devices.size(); ++c) {
    for (Time& time : last.compute)
      time.value *= 2;
    last.capacity = {last.capacity.value / 4 * 3};
    last.devices = devices[c];
    problem.others.push_back(last);
  }
  return problem;
}

void two_classes(benchmark::State& state) {
  const auto devices = static_cast<int>(state.range(0));
  suffix(state, on_classes({devices, devices}, static_cast<int>(state.range(1))));
}
BENCHMARK(two_classes)->Args({16, 0})->Args({64, 0})->Args({64, 8})->Unit(benchmark::kMillisecond);

void three_classes(benchmark::State& state) {
  suffix(state, on_classes({16, 16, 16}, static_cast<int>(state.range(0))));
}
BENCHMARK(three_classes)->Arg(0)->Arg(8)->Unit(benchmark::kMillisecond);

// No layer fits on a device, which takes a second search to say by how much.
void nothing_fits(benchmark::State& state) {
  SuffixProblem problem = random_chain(96, 128, {});
  problem.capacity = {100'000'000};
  suffix(state, problem);
}
BENCHMARK(nothing_fits)->Unit(benchmark::kMillisecond);

// The probe on 1000 layers of 1 to 1000 us in 64 parts.
void probe(benchmark::State& state) {
  std::mt19937 random(3);
  std::vector<Time> load;
  for (int i = 0; i < 1000; ++i)
    load.push_back({draw(random, 1000, 1'000'000)});
  for (auto _ : state)
    benchmark::DoNotOptimize(min_max(load, 64));
}
BENCHMARK(probe)->Unit(benchmark::kMicrosecond);

// Chains with lognormal forward times of 1 ms (sigma 0.7), backwards 1.5 to 2.5 times those, hops a share of a stage's
// load; the search over all partitions for the least simulated step, ten chains. `gap`: the largest that is left.
void exact_step(benchmark::State& state) {
  const auto layers = static_cast<int>(state.range(0)), hop_percent = static_cast<int>(state.range(3));
  std::vector<ExactProblem> problems;
  std::mt19937 random(2);
  std::lognormal_distribution<double> forward(0, 0.7);
  std::uniform_real_distribution<double> ratio(1.5, 2.5);
  for (int chain = 0; chain < 10; ++chain) {
    ExactProblem problem{.schedule = "1f1b",
                         .stages = static_cast<int>(state.range(1)),
                         .micro_batches = static_cast<int>(state.range(2))};
    double load = 0;
    for (int i = 0; i < layers; ++i) {
      const double f = 1e6 * forward(random), b = ratio(random) * f;
      problem.forward.push_back({static_cast<std::int64_t>(f)});
      problem.backward.push_back({static_cast<std::int64_t>(b)});
      load += f + b;
    }
    problem.hop.assign(static_cast<std::size_t>(layers),
                       Time{static_cast<std::int64_t>(load / problem.stages * hop_percent / 100)});
    problems.push_back(problem);
  }
  double simulations = 0, prefixes = 0, gap = 0, proven = 0;
  for (auto _ : state) {
    simulations = prefixes = gap = proven = 0;
    for (const ExactProblem& problem : problems) {
      const ExactAnswer answer = exact(problem);
      simulations += static_cast<double>(answer.simulations), prefixes += static_cast<double>(answer.prefixes);
      gap = std::max(gap, answer.gap()), proven += answer.proven() ? 1 : 0;
    }
  }
  state.counters["simulations"] = simulations / 10;  // of one chain
  state.counters["prefixes"] = prefixes / 10;
  state.counters["proven"] = proven;
  state.counters["gap"] = gap;
}
BENCHMARK(exact_step)
    ->ArgNames({"layers", "stages", "micro_batches", "hop_percent"})
    ->Args({24, 4, 32, 5})
    ->Args({24, 8, 16, 0})
    ->Args({24, 8, 16, 5})
    ->Args({24, 8, 16, 15})
    ->Args({96, 8, 64, 5})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright::tests

BENCHMARK_MAIN();
