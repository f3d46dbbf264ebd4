// How near the formulas of a measured device come to what was measured: a table, a plot in text, and one as SVG.
#pragma once

#include <string>

#include "core/cluster/measured_device.hpp"

namespace pipewright::io {

// One line per operation, pass and precision of all its series together: sizes, where the sizes lie between 30 % below
// and above what the formula says (a character is 2 %), and the cross-validated errors, weighted by sizes:
//
//     linear forward fp32        1284 sizes  |          .:#|#:.           |  mean  2.1 %  p95  6.0 %  bias +0.2 %
//
// Then what a launch takes, one by one and in a graph, how much operations slow one another, and what was left out:
//
//     linear bf16 beside copy to host fp32         1 of 2 virtual devices      1.083 ± 0.4 %, spread 2.1 %
std::string fit_table(const MeasuredDevice& device);

// A panel per operation: to the right the measured time (logarithmic), upwards formula / measured - 1, a colour per
// precision, filled: alone, hollow: while other virtual devices computed.
std::string fit_svg(const MeasuredDevice& device);

}  // namespace pipewright::io
