// Measured runs beside what the simulator prices for them, and the search for the constants that are fitted on a few.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/answers/measured.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::planner {

// The scenario with "key=value" changes. Throws InputError.
using ScenarioOf = std::function<Scenario(const std::vector<std::string>& set)>;

// Each run as a scenario of its own: its row sets keys, after `more`, the plan is priced whether it fits the devices'
// memory or not, and its figures stand beside the measured ones. A run that does not make a valid scenario, or whose layout does
// not take the devices that its row names, becomes RunState::Unpriced with the reason. Runs that cannot be expressed or
// are left out pass through. `ranges`: with 90 % intervals, for which each run is priced many times.
std::vector<PredictedRun> predict(const MeasuredTable& table, const std::vector<MeasuredRun>& runs,
                                  const ScenarioOf& scenario, const std::vector<std::string>& more = {},
                                  bool ranges = true);

// `subsets`: those with failed runs.
RowCounts row_counts(const MeasuredTable& table, const std::vector<PredictedRun>& runs);

// Errors of the runs that are predictions, of each figure: of all, by subset, by group of files, and by each column
// under plan. or training.micro_batch_size whose values differ.
//     errors -2 %, 1 % and 6 %: mean 3 %, median 2 %, largest 6 %, bias 1.667 %.   tests/planner/measured_test.cpp
// Of the runs with a 90 % interval, the share whose measured figure lies in it, and the median of its half-widths.
std::vector<ErrorSummary> error_summaries(const MeasuredTable& table, const std::vector<PredictedRun>& runs);

// What the model would have to leave out (kLeftOut) for each run on lines 5, 10, 15, ... of its file to lie inside the 90 %
// interval of the first figure, a time or a rate; ascending. Runs that a profile prices leave nothing out and are none.
//     interval 0.9 to 1.2 s around 1 s of which kLeftOut = 8 % is part, measured 1.3 s: sqrt(ln^2 1.3 - ln^2 1.2 + ln^2
//     1.08) = 0.2038, so 22.6 %; measured 1.1 s: 0                                       tests/planner/measured_test.cpp
std::vector<double> left_out_needed(const MeasuredTable& table, const std::vector<PredictedRun>& runs);

// Runs that are predictions of the first figure, a time or a rate, grouped by the number of devices, what they set of
// the model, and every column that is not a choice of layout (plan.*, training.micro_batch_size); groups of one are left
// out. Ties go to the line that stands first.
std::vector<RankedGroup> ranking(const MeasuredTable& table, const std::vector<PredictedRun>& runs);

// Series of `weak_scaling`, of runs that are predictions of the first figure, a time or a rate per device: the mean of the
// runs on the most devices against that on the least. Steps of 1 s on 8 and 1.25 s on 64 devices: 0.8. Series on one
// number of devices are left out.          tests/planner/measured_test.cpp "weak scaling"
std::vector<ScalingSeries> weak_scaling(const MeasuredTable& table, const std::vector<PredictedRun>& runs);

// The constants as they were expected before any run was seen: "key=value" of each. With them nothing is fitted.
std::vector<std::string> expected_constants(const MeasuredTable& table);

// A value for each constant, as text ("52.1 us"): the most probable one, given what is expected of the constants and
// the first figure of the runs that are marked `fitted`, with logarithms distributed normally. It makes least
//     sum over runs (ln(predicted / measured) / noise)^2 + sum over constants (ln(value / expected) / ln(factor))^2
// so that a constant that the runs do not determine stays where it was expected. Where a share of the runs may be faulty
// (MeasuredTable::faulty, f), anywhere within a factor of about e, a run counts with off = ln(predicted / measured) / noise
//     -2 ln((1 - f) exp(-off^2 / 2) + f noise)                                  in place of off^2
// f = 0.1, noise 0.1: a run 1.1 times off counts 1.08, one 10 times off 9.21, one 100 times off 9.21.
//                                                          tests/planner/measured_test.cpp "What a run counts"
// The search goes along one constant at
// a time, by factors that shrink from 1.6 until none of 0.2 % helps. The same input gives the same values.
struct Fit {
  std::vector<std::string> values;  // by constant
  double loss = 0;                  // the sum above
  int tried = 0;
};
Fit fit(const MeasuredTable& table, const std::vector<MeasuredRun>& runs, const ScenarioOf& scenario);

}  // namespace pipewright::planner
