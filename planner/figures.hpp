// Figures of an answer, as `expect:` and `measured:` name them.
#pragma once

#include <optional>

#include "core/plan/expectation.hpp"
#include "core/plan/report.hpp"
#include "core/plan/scenario.hpp"

namespace pipewright {

// What needs no plan: parameters and layers of the model.
std::optional<double> figure_of(const Scenario& scenario, const FigureSought& sought);

// In SI base units. Rates "per device" count every device of a worker. Throws InputError where the scenario says too
// little for it (a peak for MFU, tokens per sample), or has no such stage.
double figure_of(const Answer& answer, const FigureSought& sought);

}  // namespace pipewright
