// A training with failures, failure by failure: by hand, and next to the formula of core/answers/campaign.hpp.
//
// The time between two failures is drawn from an exponential distribution. Every `interval` of training a checkpoint is
// written; a failure, whatever is going on, takes the training back to the last one and begins a restart, which
// starts again if a failure hits it.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <doctest/doctest.h>

#include "core/answers/campaign.hpp"
#include "core/random.hpp"
#include "core/units.hpp"

using namespace pipewright::tests;

namespace {

struct FailingRun {
  Time work;  // training to be done
  Time interval, checkpoint, restart;
};

struct FailingRunResult {
  Time duration;
  std::int64_t failures = 0;
};

// `next_failure()`: time from one failure (or the start) to the next.
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

// Failures at these times, then never again.
FailingRunResult run_at(const FailingRun& run, const std::vector<std::int64_t>& failures) {
  std::size_t next = 0;
  return run_with_failures(run, [&] {
    if (next == failures.size()) return Time{std::int64_t{1} << 50};
    const std::int64_t before = next == 0 ? 0 : failures[next - 1];
    return Time{failures[next++] - before};
  });
}

constexpr FailingRun kRun{Time{100}, Time{40}, Time{5}, Time{10}};
constexpr Time kMinuteOfRun{60'000'000'000};
constexpr Time kMtbf = 60 * kMinuteOfRun, kCheckpoint = kMinuteOfRun, kRestart = 5 * kMinuteOfRun;
constexpr std::int64_t kHours = 2000;  // of training

// Training over mean time, and failures of one training, of `trials` trainings.
struct Drawn {
  double share = 0, failures = 0;
};
Drawn drawn(Time interval, int trials) {
  const FailingRun run{kHours * 60 * kMinuteOfRun, interval, kCheckpoint, kRestart};
  double all = 0, failures = 0;
  for (int trial = 1; trial <= trials; ++trial) {
    Random random(1, static_cast<std::uint64_t>(trial));
    const FailingRunResult result = run_with_failures(run, [&] {
      return Time{std::llround(std::max(1.0, -static_cast<double>(kMtbf.value) * std::log(random.uniform())))};
    });
    all += seconds(result.duration), failures += static_cast<double>(result.failures);
  }
  return {seconds(run.work) * trials / all, failures / trials};
}

}  // namespace

TEST_CASE("a training without failures takes its work and a checkpoint after every interval and at the end") {
  CHECK(run_at(kRun, {}).duration == Time{40 + 5 + 40 + 5 + 20 + 5});
  CHECK(run_at({Time{80}, Time{40}, Time{5}, Time{10}}, {}).duration == Time{90});
}

TEST_CASE("failures by hand: work since the last checkpoint is lost, and a restart begins") {
  const FailingRunResult early = run_at(kRun, {30, 60});
  CHECK(early.failures == 2);
  CHECK(early.duration == Time{185});  // 0-30 lost, restart, 40-60 lost, restart, 70-185
  // A failure while the second checkpoint is written: 45 to 88 is lost, 10 of restart, then 65 are left, with two
  // checkpoints: 98 + 45 + 25.
  CHECK(run_at(kRun, {88}).duration == Time{168});
  // At the very end of the first checkpoint: it holds.
  CHECK(run_at(kRun, {45}).duration == Time{45 + 10 + 45 + 25});
  // During a restart: it starts again.
  CHECK(run_at(kRun, {30, 35}).duration == Time{35 + 10 + 115});
  CHECK(run_at(kRun, {30, 35}).failures == 2);
}

TEST_CASE("the simulated goodput is the formula's") {
  const Time interval = daly_interval(kCheckpoint, kMtbf);
  const double formula = goodput_by_formula(interval, kCheckpoint, kRestart, kMtbf);
  const Drawn simulated = drawn(interval, 400);
  // The time between two failures varies as much as its mean, so one training's share of some 2600 failures by about
  // (1 - goodput) / sqrt(2600), 0.5 %, and the mean of 400 by a twentieth of that.
  CHECK(std::abs(simulated.share / formula - 1) < 0.002);
  CHECK(std::abs(simulated.failures / (kHours / formula) - 1) < 0.01);  // one an hour
}

TEST_CASE("Daly's interval is better than its half and its double, simulated too") {
  const Time daly = daly_interval(kCheckpoint, kMtbf);
  const double best = drawn(daly, 100).share;
  CHECK(best > drawn({daly.value / 2}, 100).share);
  CHECK(best > drawn(2 * daly, 100).share);
}
