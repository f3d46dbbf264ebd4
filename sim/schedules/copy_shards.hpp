// Weights and gradients that lie in the host's memory, divided.
#pragma once

#include "core/plan/schedule.hpp"

namespace pipewright::sim {

// Adds to a schedule that gathers weights the copies of the shards: from the host before each gather from all, to it behind
// each reduction.                                       tests/sim/host_weights_test.cpp
void copy_shards(Schedule& schedule);

}  // namespace pipewright::sim
