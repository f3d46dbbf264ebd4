// Ops whose time depends on how many workers compute while they run, as those that share caches and memory, or the
// multiprocessors of one GPU.
//
// T(n) is an op's price while n workers compute (`StepCosts::loads`; in between on the line, below the least the
// least's). An op from a to b has done its work when
//
//     integral from a to b of dt / T(n(t)) = 1
//
// An op of 10 ns among two workers and 8 ns alone, whose neighbour computes for its first 5 ns: half of it is done
// then, the rest takes 4: 9 ns. n(t) depends on the times, which depend on n(t): the timeline is made again until no op
// changes by more than 0.01 %, at most twenty times.                                         tests/sim/at_load_test.cpp
#pragma once

#include "sim/simulate.hpp"

namespace pipewright::sim {

// Fills costs.settled, and returns the timeline of those prices. Without loads: simulate.
Timeline settle(const Schedule& schedule, StepCosts& costs, Engine engine);

}  // namespace pipewright::sim
