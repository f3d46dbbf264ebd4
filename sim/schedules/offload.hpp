// Activations that wait in the host's memory between a forward and its backward.
#pragma once

#include "core/plan/schedule.hpp"

namespace pipewright::sim {

// Adds the offloads and reloads of the chunks of ScheduleShape::offloaded to a schedule that has none. What one of the
// next two ops reads stays: it would have to be back before it is gone.            tests/sim/offload_test.cpp
void offload(Schedule& schedule);

}  // namespace pipewright::sim
