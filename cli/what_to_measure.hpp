// The last line of `calibrate`: whose measurement would make the interval of a scenario's step time smallest.
#pragma once

#include <string>

#include "core/plan/scenario.hpp"

namespace pipewright {

// "next for two-stage: measured times of linear 64x..., by calibrate with a larger --budget: the step of 3.1 ms, 90 %
// within 3.0 ms to 3.2 ms, would have 90 % within ...". Says where every operation is measured, or nothing is open.
std::string what_to_measure(const Scenario& priced);

}  // namespace pipewright
