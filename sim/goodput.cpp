#include "sim/goodput.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/random.hpp"

namespace pipewright {
namespace {

constexpr double kLeastGoodput = 0.01;
constexpr double kMostFailures = 1e7;       // of all trials together
constexpr double kMostFailuresOfOne = 1e5;  // of one trial
constexpr double kLongest = 1e18;           // of one trial, in nanoseconds: 31 years
constexpr double kLatest = 4e18;            // what is later than the end of any trial
constexpr std::int64_t kFewestTrials = 20;

}  // namespace

FailingRunResult run_with_failures(const FailingRun& run, const std::function<Time()>& next_failure) {
  FailingRunResult result;
  Time now, saved, failure = next_failure();
  while (true) {
    // Whole intervals, then what is left of the work; a checkpoint behind each.
    const Time cycle = run.interval + run.checkpoint;
    const std::int64_t whole = (run.work - saved).value / run.interval.value;
    const Time rest = run.work - saved - whole * run.interval;
    const Time end = now + whole * cycle + (rest > Time{} ? rest + run.checkpoint : Time{});
    if (failure >= end) return result.duration = end, result;
    saved += std::min(whole, (failure - now).value / cycle.value) * run.interval;
    do {  // a restart, again where it fails
      ++result.failures;
      now = failure + run.restart;
      failure += next_failure();
    } while (failure < now);
  }
}

void simulate_goodput(GoodputReport& report, double duration, std::int64_t trials) {
  if (report.formula < kLeastGoodput) {
    report.not_simulated =
        "failures come so often that next to nothing is done between them, which takes too long to simulate";
    return;
  }
  const double mean = static_cast<double>(report.mtbf.value);
  double part = std::min(1.0, kLongest * report.formula / (duration * 1e9));
  part = std::min(part, kMostFailuresOfOne / std::max(1.0, report.failures));
  const FailingRun run{Time{std::max<std::int64_t>(1, std::llround(duration * part * 1e9))}, report.interval,
                       report.checkpoint, report.restart};
  const double failures = std::max(1.0, report.failures * part);
  report.trials = std::clamp(static_cast<std::int64_t>(kMostFailures / failures), kFewestTrials, trials);
  report.simulated_part = part;
  double all = 0, failed = 0;
  std::vector<double> shares;
  for (std::int64_t trial = 0; trial < report.trials; ++trial) {
    Random random(static_cast<std::uint64_t>(report.seed), static_cast<std::uint64_t>(trial) + 1);
    const FailingRunResult result = run_with_failures(
        run, [&] { return Time{std::llround(std::clamp(mean * random.exponential(), 1.0, kLatest))}; });
    all += seconds(result.duration), failed += static_cast<double>(result.failures);
    shares.push_back(ratio(run.work, result.duration));
  }
  const auto count = static_cast<double>(report.trials);
  report.simulated = seconds(run.work) * count / all;
  report.simulated_failures = failed / count / part;
  report.spread = quantiles(std::move(shares));
}

}  // namespace pipewright
