// Other scenarios near the one that was asked: what would make it fit, and what would make it faster. Every suggestion
// has been simulated before it is made.
#pragma once

#include <string>
#include <vector>

#include "core/answers/report.hpp"

namespace pipewright::planner {

// Ways to make a plan fit that does not, the fastest first: what costs no time (1f1b, sequence parallelism, ZeRO-1,
// gradients in 16 bits, a fitting partition), recompute, smaller micro-batches, more stages; when none helps alone, the
// first of pairs of them, then of what costs no time together with one and two of the others. "recompute: blocks
// needs 73.4 GiB, 6.944 samples/s: --set plan.recompute=blocks". One line saying so when nothing that was
// tried fits. tests/cli/told_test.cpp "8B"
std::vector<std::string> remedies(const Answer& answer);

// Changes that bring at least 5 % and fit, the largest gain first: more micro-batches, eager sends, a balanced
// partition. None when the run is too long to be repeated at once.
std::vector<std::string> hints(const Answer& answer);

}  // namespace pipewright::planner
