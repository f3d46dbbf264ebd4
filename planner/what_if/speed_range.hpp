// The 90 % interval of the step time, what it is made of, and what to measure to make it smaller.
//
// Causes are independent of one another: each kind of operator on each class of devices (its band), collectives inside
// a node, messages, links, network and host (theirs), each operation of a measured device and what all its times share,
// a measured profile (its errors), and what the model leaves out (kLeftOut). The same plan and schedule is priced with
// one cause at a time at either end of its own 90 %, and the effects add up by the root of the sum of squares of their
// logarithms, on each side of the stated step t:
//
//     d_c = ln(t / shortest of t, better_c, worse_c)      u_c = ln(longest / t)
//     interval = t exp(-sqrt(sum of d_c^2)) .. t exp(sqrt(sum of u_c^2))        share_c = (d_c^2 + u_c^2) / sum of them
//
// Causes of +-10 % and +-24 %: sqrt(ln^2 1.1 + ln^2 1.24) = 0.2353, so 26.5 % longer or 21.0 % shorter, 84 % of the variance
// by the second.                                                            tests/planner/speed_range_test.cpp
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/answers/ranking.hpp"
#include "core/answers/report.hpp"
#include "sim/simulate.hpp"

namespace pipewright::planner {

// 90 % of what a price from operators leaves out (other work of the framework, clocks, neighbours): a step takes
// between 1 / (1 + kLeftOut) and 1 + kLeftOut of it. Of every fifth line of the measured
// runs (38 of five sets) 33 lie inside their interval with it; `reproduce runs` prints how many would with others.
constexpr double kLeftOut = 0.08;

struct SpeedRangeAnswer {
  std::optional<SpeedRange> range;
  std::string caution;  // "", or which better figures do not make shorter steps
};

// Nothing where no figure with a stated band, no measured device and no measured profile prices the step, or where an
// end of it is longer than 2^62 ns, which the caution says.
//
// A run too long to be repeated at once (more ops and messages than `largest_run`, else `largest_repeated_run`) is
// repeated by fixed orders, with one copy for all that lie alike on the cluster: the step grows and shrinks as that
// does. Without shared links that is exact, to a nanosecond of rounding.
// tests/planner/speed_range_test.cpp "copies that run alike"
SpeedRangeAnswer speed_range(const Answer& answer, Engine engine, std::optional<std::int64_t> largest_run = {});

// The same of a plan that a search has found.
std::optional<SpeedRange> speed_range(const Found& found);

// Steps and rates of `stated` from the effects of its causes alone: fills everything but what they are.
SpeedRange combined(Time stated, double samples_per_s, std::vector<RangeCause> causes);

}  // namespace pipewright::planner
