#include "runtime/measurement.hpp"

#include <algorithm>
#include <cmath>
#include <thread>

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

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace pipewright
