#include "calibrate/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "core/check.hpp"

namespace pipewright::calibrate {
namespace {

// Mean and spread of numbers as they come [Welford62].
class Running {
 public:
  void add(double x) {
    ++count_;
    const double before = x - mean_;
    mean_ += before / static_cast<double>(count_);
    squares_ += before * (x - mean_);
  }
  std::size_t count() const { return count_; }
  double mean() const { return mean_; }
  // Standard error of the mean, relative to it; of fewer than two numbers nothing is known.
  double error() const {
    if (count_ < 2 || mean_ <= 0) return 1;
    const auto n = static_cast<double>(count_);
    return std::sqrt(squares_ / (n - 1) / n) / mean_;
  }

 private:
  std::size_t count_ = 0;
  double mean_ = 0, squares_ = 0;
};

}  // namespace

Sampling sample(Stopwatch& stopwatch, const SamplingRule& rule) {
  PP_CHECK(rule.least >= 1 && rule.most >= rule.least && rule.patience >= 1 && rule.seconds > 0);
  Sampling result;
  std::vector<double> kept;
  Running times, clocks;
  double spent = 0, pause = rule.pause;
  for (int slow = 0;;) {
    const Reading reading = stopwatch.time();
    PP_CHECK(reading.ns >= 0);
    spent += std::max(reading.ns, reading.spent_ns) * 1e-9;
    if (reading.clock < rule.least_clock) {
      ++result.discarded;
      if (++slow == rule.most_discarded) {
        result.slowed = true;
        break;
      }
      if (slow % rule.patience == 0) {
        stopwatch.pause(pause);
        pause *= 1.5;
      }
      continue;
    }
    slow = 0, pause = rule.pause;
    kept.push_back(reading.ns);
    times.add(reading.ns), clocks.add(reading.clock);
    if (kept.size() < static_cast<std::size_t>(rule.least)) continue;
    result.enough = times.error() <= rule.error;
    if (result.enough || spent >= rule.seconds || kept.size() >= static_cast<std::size_t>(rule.most)) break;
  }
  if (!kept.empty()) {
    result.error = times.error();
    result.clock = clocks.mean();
    result.times = statistics(std::move(kept));
  }
  return result;
}

std::string text(const Sampling& s) {
  if (s.times.count == 0) return fmt::format("no reading: the clock stayed low {} times in a row", s.discarded);
  std::string line =
      fmt::format("{:.4g} us ± {:.2g} % of {} readings", s.times.mean / 1e3, 100 * s.error, s.times.count);
  if (s.discarded > 0) line += fmt::format(", {} discarded at a low clock", s.discarded);
  if (s.slowed) line += ", where it stayed";
  return line;
}

}  // namespace pipewright::calibrate
