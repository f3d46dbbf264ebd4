// How often something is timed until its mean is known well enough.
//
// A reading is a time and the clock of the device while it was taken. Readings at a slowed clock are discarded: the
// device was too hot or out of power, and the price of an op is that at its normal clock. After a few such readings in
// a row there is a pause, which grows while they go on (the rule of nvbench's measurement loop).
//
// Sampling ends when the standard error of the mean is small enough, s / (sqrt(n) mean) <= `error`, or when the time is
// used up, whichever is first; what was reached is kept. Readings of no length, which use up no time, end by their
// count. Slow outliers do not count to the mean (`statistics`), but to s.
//     100, 102, 98, 100, ... ns: s = 1.63 ns; at error 0.5 % n = (1.63 / (100 x 0.005))^2 = 11 readings are enough
//                                                                 tests/calibrate/sampling_test.cpp "as many as it
//                                                                 takes"
#pragma once

#include <optional>
#include <string>

#include "calibrate/statistics.hpp"
#include "core/cluster/measured_terms.hpp"

namespace pipewright::calibrate {

struct Reading {
  double ns = 0;
  double clock = 1;     // share of the device's normal clock; 1 where that is not known
  double spent_ns = 0;  // that the reading took, where that is more than ns: it may be the mean of many passes
};

// What is timed.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual Reading time() = 0;
  virtual void pause(double seconds) = 0;
  // How a library did what was timed; nothing: none did, or it does not tell.
  virtual std::optional<ProductAlgorithm> algorithm() const { return std::nullopt; }
};

struct SamplingRule {
  double error = 0.005;       // of the mean, relative: enough
  double seconds = 0.015;     // of readings, discarded ones among them, until it ends anyhow
  int least = 10;             // readings in any case, as long as the clock is normal
  int most = 10'000;          // readings at a normal clock; a device may tell 0 ns for what is too short for its clock
  double least_clock = 0.75;  // slower readings are discarded
  double pause = 0.05;        // seconds, after `patience` discarded readings in a row; times 1.5 each time
  int patience = 3;
  int most_discarded = 30;  // in a row: the device stays slow
};

struct Sampling {
  Statistics times;  // of what was not discarded
  double error = 0;  // standard error of the mean that was reached, relative
  double clock = 1;  // mean share of the normal clock
  int discarded = 0;
  bool enough = false;  // the error was reached
  bool slowed = false;  // the clock stayed low: `times` may have no readings
};

// Throws what the stopwatch throws.
Sampling sample(Stopwatch& stopwatch, const SamplingRule& rule = {});

// "1.234 us ± 0.4 % of 57 readings", and what was wrong with them.
std::string text(const Sampling& sampling);

}  // namespace pipewright::calibrate
