// Measured runs beside what the simulator prices for them, and the search for the constants that are fitted on a few.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/plan/measured.hpp"
#include "core/plan/scenario.hpp"

namespace pipewright {

// The scenario with "key=value" changes. Throws InputError.
using ScenarioOf = std::function<Scenario(const std::vector<std::string>& set)>;

// Each run as a scenario of its own: its columns set their keys, the plan is priced (`price`) whether it fits the
// devices' memory or not, and its step time stands beside the measured one. Throws InputError, with the run's place,
// where a line makes no good scenario or its layout does not take the devices that the line names.
std::vector<PredictedRun> predict(const MeasuredTable& table, const std::vector<MeasuredRun>& runs,
                                  const ScenarioOf& scenario);

// Errors of the runs that are predictions: of all, by group of files, and by each column under plan. or
// training.micro_batch_size whose values differ.
//     errors -2 %, 1 % and 6 %: mean 3 %, median 2 %, largest 6 %, bias 1.667 %.   tests/planner/measured_test.cpp
std::vector<ErrorSummary> error_summaries(const MeasuredTable& table, const std::vector<PredictedRun>& runs);

// Runs that are predictions, grouped by the number of devices and every column that is no choice of layout (plan.*,
// training.micro_batch_size); groups of one are left out. Ties go to the line that stands first.
std::vector<RankedGroup> ranking(const MeasuredTable& table, const std::vector<PredictedRun>& runs);

// A value for each constant, as text ("52.1 us"): the most probable one, given what is expected of the constants and
// the runs that are marked `fitted`, with logarithms distributed normally. It makes least
//     sum over runs (ln(predicted / measured) / noise)^2 + sum over constants (ln(value / expected) / ln(factor))^2
// so that a constant that the runs do not determine stays where it was expected. The search goes along one constant at
// a time, by factors that shrink from 1.6 until none of 0.2 % helps. The same input gives the same values.
struct Fit {
  std::vector<std::string> values;  // by constant
  double loss = 0;                  // the sum above
  int tried = 0;
};
Fit fit(const MeasuredTable& table, const std::vector<MeasuredRun>& runs, const ScenarioOf& scenario);

}  // namespace pipewright
