// How much of the answer hangs on efficiencies that are stated with a band.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/plan/ranking.hpp"
#include "core/plan/report.hpp"
#include "sim/simulate.hpp"

namespace pipewright {

struct SpeedRangeAnswer {
  std::optional<SpeedRange> range;
  std::string caution;  // "", or that better devices do not make shorter steps
};

// The same plan and schedule, priced twice more: with every efficiency of the device at the upper end of its band,
// min(1, share * (1 + band)), and at the lower one, share * (1 - band). All move together: the range is that of devices
// that are better or worse in everything, wider than what independent errors would give. A measured device's times move
// by 1.645 of their standard errors, common and independent ones together. Nothing where no stated efficiency with a
// band and no measured device prices a layer.
//
// A run too long to be repeated at once (more ops and messages than `largest_run`, else `largest_repeated_run`) is
// repeated by fixed orders, with one copy for all that lie alike on the cluster, three times, as stated and at both
// ends: the step grows and shrinks as that does. Without shared links that is exact, to a nanosecond of rounding.
// tests/planner/speed_range_test.cpp "copies that run alike"
//
// The range is the shortest and the longest of the three steps, the stated one among them: an asynchronous schedule
// may settle into another order where devices are a little better, and take longer.
SpeedRangeAnswer speed_range(const Answer& answer, Engine engine, std::optional<std::int64_t> largest_run = {});

// The same of a plan that a search has found.
std::optional<SpeedRange> speed_range(const Found& found);

}  // namespace pipewright
