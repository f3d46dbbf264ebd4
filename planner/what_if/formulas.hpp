// Textbook formulas beside the simulated values, each with what its assumptions miss here.
#pragma once

#include <vector>

#include "core/answers/report.hpp"

namespace pipewright::planner {

// Bubble share, step time of GPipe, micro-batches in flight on the first and the last stage: those that are known for
// the schedule. Shares are in percent, times in seconds.
std::vector<FormulaReport> formulas(const Answer& answer);

}  // namespace pipewright::planner
