// Other scenarios near the one that was asked: what would make it fit, and what would make it faster. Every suggestion
// has been simulated before it is made.
#pragma once

#include <string>
#include <vector>

#include "core/plan/report.hpp"
#include "sim/simulate.hpp"

namespace pipewright {

// Ways to make a plan fit that does not: recompute, a schedule that keeps fewer micro-batches, smaller micro-batches,
// more stages, and pairs of them when none helps alone. "with recompute: full it needs 9.8 GiB and makes 120.8
// samples/s: --set plan.recompute=full". One line saying so when nothing that was tried fits.
std::vector<std::string> remedies(const Answer& answer);

// Changes that bring at least 5 % and fit, the largest gain first: more micro-batches, eager sends, a balanced
// partition. None when the run is too long to be repeated at once.
std::vector<std::string> hints(const Answer& answer);

}  // namespace pipewright
