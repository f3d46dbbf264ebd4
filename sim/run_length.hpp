// No clock of a run may wrap. What bounds a run: all of its ops, messages and collectives, one after the other.
#pragma once

#include <functional>

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"

namespace pipewright::sim {

// Throws InputError ("the time of a run overflows") where they take longer than `kLargest`. Copies run at the same time,
// unless they share links or streams: then `copies` wait for one another. Of a message the copy counts where it is
// longest.                                                                             tests/sim/run_length_test.cpp
void check_run_length(const Schedule& schedule, const StepCosts& costs, int copies = 1);

// The same of an order that is no list any more: what its communication takes, and all its ops, in nanoseconds.
void check_run_length(const StepCosts& costs, double collectives, const std::function<double()>& computing);

}  // namespace pipewright::sim
