// How much of the answer hangs on efficiencies that are stated with a band.
#pragma once

#include <optional>
#include <string>

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
// band and no measured device prices a layer, and for runs too long to be repeated at once (`largest_repeated_run`).
//
// The range is the shortest and the longest of the three steps, the stated one among them: an asynchronous schedule
// may settle into another order where devices are a little better, and take longer.
SpeedRangeAnswer speed_range(const Answer& answer, Engine engine);

}  // namespace pipewright
