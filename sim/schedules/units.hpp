// Chunks cut into units: what is gathered, computed and reduced at once.                       [FSDP23] section 3.2.1
#pragma once

#include "core/plan/schedule.hpp"

namespace pipewright::sim {

// The same passes with each of a chunk's in `units` parts, one after the other: forwards from the first unit on,
// backwards from the last, each behind its own recomputation.
//     F0 R0 B0 of one chunk in two units: F0 F1 R1 B1 R0 B0
//                                                             tests/sim/units_test.cpp
void cut_into_units(Schedule& schedule, int units);

}  // namespace pipewright::sim
