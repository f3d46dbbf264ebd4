// What a core can do at best, measured in the same process, so that a benchmark's figure is a ratio: machines differ
// and are busy.
//
//   of_chain     share of the rate of a dependent max + add: nothing that follows one worker's clock can be faster
//   of_triad     share of the memory bandwidth of one core (a = b + s c over 48 MB)
//   peak_rss_MB  largest resident size of the process during the benchmark, its inputs included
//
// Rates count CPU time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

namespace pipewright::tests {

inline double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Best of five: the machine's rate of `work`, in units per second.
template <class Work>
double best_rate(double units, const Work& work) {
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const double start = cpu_seconds();
    work();
    best = std::max(best, units / (cpu_seconds() - start));
  }
  return best;
}

// Dependent max + add, as along one worker's clock.
inline double chain_rate() {
  static const double rate = best_rate(1 << 24, [] {
    std::vector<std::int64_t> arrival(1024, 1);
    benchmark::DoNotOptimize(arrival.data());
    std::int64_t time = 0;
    for (int round = 0; round < (1 << 14); ++round) {
      for (const std::int64_t at : arrival)
        time = std::max(time, at) + 3;
      benchmark::DoNotOptimize(time);
    }
  });
  return rate;
}

// a = b + s * c over 48 MB: bytes per second of one core to memory.
inline double triad_rate() {
  std::vector<double> a, b, c;
  static const double rate = best_rate(3.0 * 8 * (1 << 21), [&] {
    a.resize(1 << 21), b.resize(1 << 21, 1.0), c.resize(1 << 21, 2.0);
    for (std::size_t i = 0; i < a.size(); ++i)
      a[i] = b[i] + 3.0 * c[i];
    benchmark::DoNotOptimize(a.data());
    benchmark::ClobberMemory();
  });
  return rate;
}

// The kernel's high-water mark of resident memory; `forget_peak` starts it anew (Linux, /proc).
inline double peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::stod(line.substr(6)) * 1024;
  return 0;
}
inline void forget_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

inline void report_rate(benchmark::State& state, const char* name, double events, double bytes_touched) {
  using benchmark::Counter;
  state.counters["peak_rss_MB"] = peak_resident_bytes() / 1e6;
  const double total = events * static_cast<double>(state.iterations());
  state.counters[name] = Counter(total, Counter::kIsRate);
  state.counters["of_chain"] = Counter(total / chain_rate(), Counter::kIsRate);
  if (bytes_touched > 0) {
    const double bytes = bytes_touched * static_cast<double>(state.iterations());
    state.counters["of_triad"] = Counter(bytes / triad_rate(), Counter::kIsRate);
  }
}

}  // namespace pipewright::tests
