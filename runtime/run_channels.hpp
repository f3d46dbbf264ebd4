// The channels of a run and how many slots each has: as few as let every worker come to the end.
//
// Between stages an op that begins finds a free slot wherever the order of the ops proves it; gradients get two where that is
// enough. Ops of a cell, which take turns, are walked through (runtime/walk.hpp).
//                                                              tests/runtime/run_plan_test.cpp, experts_test.cpp "pairs"
#pragma once

#include "runtime/run_plan.hpp"

namespace pipewright::runtime {

// Channels between stages, then those between copies: rings of shared sequences, rows of experts. `run` has its code.
void add_channels(RunPlan& run);

}  // namespace pipewright::runtime
