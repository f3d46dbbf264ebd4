// A training with failures, failure by failure: what the formulas of core/plan/campaign.hpp say, simulated.
//
// Devices fail one after the other, the time between two failures drawn from an exponential distribution of mean M.
// Every `interval` of training a checkpoint is written; a failure, in the midst of whatever, takes the training back to
// the last one and begins a restart, which begins anew where a failure hits it.
//     work 100, interval 40, checkpoint 5, restart 10, failures at 30 and 60: 0-30 lost, 30-40 restart, 40-60 lost,
//     60-70 restart, then 40 + 5, 40 + 5, 20 + 5: done at 185.             tests/sim/goodput_test.cpp "failures by
//     hand"
#pragma once

#include <cstdint>
#include <functional>

#include "core/plan/campaign.hpp"
#include "core/units.hpp"

namespace pipewright {

struct FailingRun {
  Time work;  // training to be done
  Time interval, checkpoint, restart;
};

struct FailingRunResult {
  Time duration;
  std::int64_t failures = 0;
};

// `next_failure()`: time from one failure (or the start) to the next, more than 0. Ends when the work is done; whoever
// calls sees to it that failures leave room for an interval now and then.
FailingRunResult run_with_failures(const FailingRun& run, const std::function<Time()>& next_failure);

// Fills what is simulated of `report`, from its other figures: `trials` trainings of `duration` seconds each, drawn
// from `report.seed`. Where that would be more than some ten million failures, fewer and shorter ones; where the
// formula's goodput is below 1 %, none.
void simulate_goodput(GoodputReport& report, double duration, std::int64_t trials);

}  // namespace pipewright
