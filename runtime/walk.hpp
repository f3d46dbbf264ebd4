// Whether the workers of a plan come to the end, each following its instructions, with the slots that its channels have.
//
// Ops that run one after the other are looked at as ops, of which each waits at its beginning (runtime/run_channels.cpp). Ops of
// a cell take turns: a cell begins when everything that its ops read first is there, and what one of them sends may wait for
// a slot that another frees. All copies of a position have the same program, so one of each is walked through.
//                                       tests/runtime/experts_test.cpp "pairs wait for no slot that only they could free"
#pragma once

#include "runtime/run_plan.hpp"

namespace pipewright::runtime {

bool runs_through(const RunPlan& run);

}  // namespace pipewright::runtime
