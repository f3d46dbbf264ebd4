// A training with failures: by hand, and beside the formula.
#include "sim/goodput.hpp"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

using namespace pipewright;

namespace {

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
constexpr Time kMinute{60'000'000'000};

GoodputReport hourly_failures() {
  GoodputReport report;
  report.mtbf = 60 * kMinute, report.checkpoint = kMinute, report.restart = 5 * kMinute;
  report.daly = daly_interval(report.checkpoint, report.mtbf);
  report.interval = report.daly;
  report.formula = goodput_by_formula(report.interval, report.checkpoint, report.restart, report.mtbf);
  report.seed = 1;
  return report;
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
  // In the midst of a restart: it begins anew.
  CHECK(run_at(kRun, {30, 35}).duration == Time{35 + 10 + 115});
  CHECK(run_at(kRun, {30, 35}).failures == 2);
}

TEST_CASE("the simulated goodput is the formula's") {
  GoodputReport report = hourly_failures();
  const double hours = 2000;
  report.failures = hours / report.formula;
  simulate_goodput(report, hours * 3600, 400);
  CHECK(report.trials == 400);
  // The time between two failures varies as much as its mean, so one training's share of some 2600 failures by about
  // (1 - goodput) / sqrt(2600), 0.5 %, and the mean of 400 by a twentieth of that.
  CHECK(std::abs(report.simulated / report.formula - 1) < 0.002);
  CHECK(std::abs(report.simulated_failures / report.failures - 1) < 0.01);
  CHECK(report.spread.p5 < report.simulated);
  CHECK(report.spread.p95 > report.simulated);
}

TEST_CASE("Daly's interval is better than its half and its double, simulated too") {
  const auto simulated = [](double factor) {
    GoodputReport report = hourly_failures();
    report.interval = Time{std::llround(static_cast<double>(report.daly.value) * factor)};
    report.formula = goodput_by_formula(report.interval, report.checkpoint, report.restart, report.mtbf);
    report.failures = 2000 / report.formula;
    simulate_goodput(report, 2000 * 3600.0, 100);
    return report.simulated;
  };
  CHECK(simulated(1) > simulated(0.5));
  CHECK(simulated(1) > simulated(2));
}

TEST_CASE("a seed draws the same failures again, another one others") {
  const auto simulated = [](std::int64_t seed) {
    GoodputReport report = hourly_failures();
    report.seed = seed;
    simulate_goodput(report, 100 * 3600.0, 20);
    return report.simulated;
  };
  CHECK(simulated(1) == simulated(1));
  CHECK(simulated(1) != simulated(2));
}

TEST_CASE("a training that failures hardly let go on is not simulated; a very long one in part") {
  GoodputReport hopeless = hourly_failures();
  hopeless.formula = 0.001;
  simulate_goodput(hopeless, 1e6, 200);
  CHECK(hopeless.trials == 0);
  CHECK(!hopeless.not_simulated.empty());
  GoodputReport endless = hourly_failures();
  endless.failures = 1e9;
  simulate_goodput(endless, 1e9 * 3600 * endless.formula, 200);
  CHECK(endless.simulated_part < 1e-3);
  CHECK(endless.trials >= 20);
  CHECK(std::abs(endless.simulated / endless.formula - 1) < 0.002);
}
