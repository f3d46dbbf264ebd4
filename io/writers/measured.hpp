// Measured runs beside predictions, as text and as comma-separated values.
#pragma once

#include <string>

#include "core/plan/measured.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {

// Every run, the errors by split, how often the layout ranked first was the fastest, and what was fitted.
std::string measured_text(const MeasuredResult& result, const TableOptions& options);
std::string measured_csv(const MeasuredResult& result);  // one row per run

}  // namespace pipewright
