#include "runtime/measurement.hpp"

#include <algorithm>
#include <cmath>

#include <pthread.h>
#include <sched.h>

#include "core/check.hpp"

namespace pipewright {

Time percentile(const std::vector<Time>& sorted, double share) {
  PP_CHECK(!sorted.empty());
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

StepTimes step_times(const std::vector<WorkerResult>& workers, int warmup) {
  StepTimes times;
  std::size_t steps = workers.empty() ? 0 : workers.front().steps.size();
  for (const WorkerResult& worker : workers)
    steps = std::min(steps, worker.steps.size());
  for (std::size_t step = static_cast<std::size_t>(warmup); step < steps; ++step)
    times.timed.push_back(timeline_of(workers, step).makespan);
  std::vector<Time> sorted = times.timed;
  std::sort(sorted.begin(), sorted.end());
  times.median = percentile(sorted, 0.5), times.p5 = percentile(sorted, 0.05), times.p95 = percentile(sorted, 0.95);
  const auto found = std::find(times.timed.begin(), times.timed.end(), times.median);
  times.median_step = static_cast<std::size_t>(warmup) + static_cast<std::size_t>(found - times.timed.begin());
  return times;
}

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
  if (cores.empty()) cores.push_back(0);
  return cores;
}

int available_cores() {
  return static_cast<int>(allowed_cores().size());
}

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

int threads_of(const RunPlan& run) {
  int threads = 0;
  for (const Lane& lane : run.schedule->positions)
    threads += (lane.collective.empty() ? 1 : 2) * run.plan->data_parallel;
  return threads;
}

}  // namespace pipewright
