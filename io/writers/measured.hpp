// Measured runs beside predictions, as text and as comma-separated values.
#pragma once

#include <string>
#include <vector>

#include "core/plan/measured.hpp"
#include "io/writers/writers.hpp"

namespace pipewright {

// Every run, the errors by split, how often the layout ranked first was the fastest, and what was fitted.
std::string measured_text(const MeasuredResult& result, const TableOptions& options);
std::string measured_csv(const MeasuredResult& result);   // one row per run
std::string measured_json(const MeasuredResult& result);  // schema pipewright.measured-runs/1

// The search for constants anew, and the runs that it was made on with what it found. Schema pipewright.fit/1.
struct FittedAnew {
  std::string title;
  std::vector<std::string> set;  // "key=value" of each constant
  int tried = 0;
  double loss = 0;  // sum of squares
  std::vector<PredictedRun> runs;
};
std::string fit_json(const FittedAnew& found);

}  // namespace pipewright
