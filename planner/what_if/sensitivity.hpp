// What one change of the world would bring: the same plan, simulated again with nothing else changed.
#pragma once

#include <string>
#include <vector>

#include "core/answers/report.hpp"
#include "sim/simulate.hpp"

namespace pipewright::planner {

// Runs of more ops and messages than this are not repeated for a hint or a comparison: about 0.2 s of the engine.
std::int64_t largest_repeated_run(const Timeline& timeline);

struct SensitivityAnswer {
  std::vector<Sensitivity> rows;
  std::string skipped;  // why there are no rows, or ""
};

// Twice the FLOP rate, the memory bandwidth (roofline), the bandwidths in the node and between nodes; half the
// latencies. Changes of things that the cluster does not have are left out.
// `engine` is the one that was asked for.
SensitivityAnswer sensitivity(const Answer& answer, Engine engine);

// Step time of the answer's schedule under other prices.
Time repeated_step_time(const Answer& answer, const StepCosts& costs, Engine engine);

}  // namespace pipewright::planner
