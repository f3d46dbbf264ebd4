// Figures of an answer, as `expect:` and `measured:` name them.
#pragma once

#include <optional>

#include "core/answers/expectation.hpp"
#include "core/answers/measured.hpp"
#include "core/answers/report.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::planner {

// What needs no plan: parameters and layers of the model.
std::optional<double> figure_of(const Scenario& scenario, const FigureSought& sought);

// In SI base units. Rates "per device" count every device of a worker. Throws InputError where the scenario says too
// little for it (a peak for MFU, tokens per sample), or has no such stage.
double figure_of(const Answer& answer, const FigureSought& sought);

// The device that a figure of the memory is of: the fullest of a stage or of all, of several the first. Not of
// Where::All. Throws InputError where there is no such stage.
struct FigureDevice {
  StageId stage;
  const MemoryPeak& memory;
  const MemoryNeed& need;
};
FigureDevice device_of(const Answer& answer, Where where, std::int64_t stage);

// The 90 % interval of a figure: of a time or a rate as that of the step (`range`), of memory by what is open of it.
// Nothing of other figures, or where there is none. A speed of 100/s where the step takes 6 s, 5 to 7.5: 80 to 120.
// tests/planner/measured_test.cpp "interval of the step"
std::optional<FigureRange> range_of(const Answer& answer, const FigureSought& sought, double value,
                                    const std::optional<SpeedRange>& range);

}  // namespace pipewright::planner
