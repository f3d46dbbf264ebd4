// No clock of a run may wrap. What bounds a run: all of a copy's ops, messages and collectives, one after the other.
#pragma once

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"

namespace pipewright::sim {

inline constexpr const char* kTimeOfRun = "the time of a run";  // that overflows

// Throws InputError ("the time of a run overflows") where they take longer than `kLargest`. Copies run at the same time;
// the messages are those of the copy where each is longest.            tests/sim/run_length_test.cpp
void check_run_length(const Schedule& schedule, const StepCosts& costs);

}  // namespace pipewright::sim
