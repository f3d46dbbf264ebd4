#include "runtime/measurement.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <iterator>

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include "core/check.hpp"
#include "core/folds.hpp"

namespace pipewright::runtime {

Time percentile(const std::vector<Time>& sorted, double share) {
  PP_CHECK(!sorted.empty());
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

Time median(std::vector<Time> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return percentile(values, 0.5);
}

StepTimes step_times(const std::vector<WorkerResult>& workers, int warmup) {
  StepTimes times;
  std::size_t steps = workers.empty() ? 0 : workers.front().steps.size();
  for (const WorkerResult& worker : workers)
    steps = std::min(steps, worker.steps.size());
  for (std::size_t step = at(warmup); step < steps; ++step)
    times.timed.push_back(timeline_of(workers, step).makespan);
  std::vector<Time> sorted = times.timed;
  std::ranges::sort(sorted);
  times.median = percentile(sorted, 0.5), times.p5 = percentile(sorted, 0.05), times.p95 = percentile(sorted, 0.95);
  const auto found = std::ranges::find(times.timed, times.median);
  times.median_step = at(warmup) + at(found - times.timed.begin());
  return times;
}

Time probe() {
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch(); };
  float values[64];
  std::fill(std::begin(values), std::end(values), 1.0F);
  const auto begin = now();
  for (int round = 0; round < 2000; ++round) {
    for (float& value : values)
      value = value * 0.999F + 0.001F;
    asm volatile("" : : "r"(values) : "memory");  // the rounds are not folded into one
  }
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(now() - begin).count()};
}

CoreUse core_use() {
  timespec cpu{};
  rusage use{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  getrusage(RUSAGE_THREAD, &use);
  return {
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(),
      std::int64_t{cpu.tv_sec} * 1'000'000'000 + cpu.tv_nsec, use.ru_nivcsw};
}

double clock_cost() {
  std::vector<double> ns;
  auto last = std::chrono::steady_clock::now();
  for (int i = 0; i < 1001; ++i) {
    const auto now = std::chrono::steady_clock::now();
    ns.push_back(static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(now - last).count()));
    last = now;
  }
  std::nth_element(ns.begin(), ns.begin() + 500, ns.end());
  return ns[500];
}

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(at(core), &set)) cores.push_back(core);
  if (cores.empty()) cores.push_back(0);
  return cores;
}

int available_cores() {
  return static_cast<int>(allowed_cores().size());
}

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(at(core), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

int threads_of(const Lane& lane) {
  return 1 + static_cast<int>(std::ranges::count_if(lane.communication, [](const auto& ops) { return !ops.empty(); }));
}

int threads_of(const RunPlan& run) {
  return sum_over<int>(run.schedule->positions,
                       [&](const Lane& lane) { return threads_of(lane) * run.plan->copies(); });
}

}  // namespace pipewright::runtime
