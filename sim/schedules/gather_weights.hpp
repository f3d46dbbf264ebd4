// Weights that are sharded over the copies of a pipeline (FSDP, ZeRO-3) are gathered for the ops that read them.
#pragma once

#include "core/plan/schedule.hpp"

namespace pipewright::sim {

// "" or why the weights of that schedule are not gathered.
std::string gathering_refusal(const Schedule& schedule);

// Adds the all-gathers to a schedule that has none. Four chunks on one worker, gathers of 2 ms, forwards of 3: 2 + 4 * 3 =
// 14 ms; gathers of 4: 4 * 4 + 3 = 19 ms. tests/sim/gather_weights_test.cpp
void gather_weights(Schedule& schedule, const Resharding& when);

}  // namespace pipewright::sim
