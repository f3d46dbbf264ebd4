// What a series of measured times says.
#pragma once

#include <vector>

namespace pipewright::calibrate {

struct Statistics {
  double mean = 0;    // ns, without the slowest 5 % (one-sided: delays only ever add)
  double median = 0;  // ns
  double least = 0;   // ns
  double p5 = 0, p25 = 0, p75 = 0, p95 = 0;
  std::size_t count = 0;
  double spread() const { return mean > 0 ? (p95 - p5) / mean : 0; }
};

// Of at least one time. 100 times of 1 us and one of 1 ms: mean 1 us (the slowest 5 % of 101, six times, are dropped).
// tests/calibrate/statistics_test.cpp
Statistics statistics(std::vector<double> ns);

// Of at least one time, all of them.
double mean(const std::vector<double>& ns);

// Which of these lengths lie in the middle half: 1, others 0. Of 1 ... 8: 3, 4, 5 and 6. Of fewer than four: all.
// Their mean is what a round of median length takes: rounds that were disturbed lie outside, and the parts of the
// remaining ones still add up, which medians do not.               tests/calibrate/statistics_test.cpp "middle half"
std::vector<char> middle_half(const std::vector<double>& lengths);

// A straight line through points by least squares, weighted by 1 / y so that small and large amounts count alike, both
// coefficients kept at 0 or more. Points (0, 2), (10, 22): 2 + 2 x.
struct Line {
  double fixed = 0, per_unit = 0;
};
Line line_through(const std::vector<std::pair<double, double>>& points);

}  // namespace pipewright::calibrate
