// What the timed steps of a run say: their lengths, the step of median length, and whether the machine was quiet.
//
// A step's length is its timeline's makespan. Percentiles are those of the sorted lengths, nearest rank. A run is noisy
// where p95 / p5 is above 1.10: then lengths say more about the machine than about the plan.
#pragma once

#include <cstddef>
#include <vector>

#include "core/plan/timeline.hpp"
#include "runtime/executor.hpp"

namespace pipewright::runtime {

constexpr double kNoisy = 1.10;  // p95 / p5

struct StepTimes {
  std::vector<Time> timed;      // in the order of the run
  std::size_t median_step = 0;  // number of the step of median length, warm-up counted
  Time median, p5, p95;
  double spread() const { return p5.value > 0 ? static_cast<double>(p95.value) / static_cast<double>(p5.value) : 1; }
  bool noisy() const { return spread() > kNoisy; }
};

// Steps after the warm-up. At least one must have been run.
StepTimes step_times(const std::vector<WorkerResult>& workers, int warmup);

// Of sorted values, nearest rank: the smallest value that at least `share` of all do not exceed.
Time percentile(const std::vector<Time>& sorted, double share);
// The same of any values, in any order; 0 of none.
Time median(std::vector<Time> values);

// A fixed piece of arithmetic on this core, some 20 us of multiplications and additions in registers: how fast the core
// is now. It slows down with the core's clock, and where another hyperthread shares its arithmetic; not with caches and
// memory.
Time probe();
// Of the calling thread, from some fixed moment each: differences of two count.
CoreUse core_use();
// ns that reading the clock takes: the median of 1001 readings.
double clock_cost();

// Cores that this process may use, by number.
std::vector<int> allowed_cores();
int available_cores();
// The calling thread stays on this core; where the system forbids it, nothing happens.
void pin_to(int core);
// Threads of a worker: its compute stream, and those beside it that have ops.
int threads_of(const Lane& lane);
int threads_of(const RunPlan& run);  // of all

}  // namespace pipewright::runtime
