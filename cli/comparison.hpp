// Predicted against measured, of one run: what `validate` prints, writes and judges.
#pragma once

#include <string>
#include <vector>

#include "cli/real_run.hpp"

namespace pipewright {

enum class Verdict { Within, Outside, Withheld };

struct Comparison {
  const Answer& predicted;
  const Answer& measured;
  const std::vector<WorkerResult>& workers;
  const RunPlan& run;
  StepTimes times;
  double tolerance = 0.1;  // of the step time
  bool forced = false;
  std::string withheld;  // why the run says nothing about time; "": it does

  double step_error() const;  // predicted / measured median - 1
  bool memory_exact() const;  // of every worker, to the byte
  Verdict verdict() const;
  std::string verdict_text() const;
};

// Half the width of the 90 % band around the predicted step, as a share of it: one error that all ops share, and one of
// each op's own, which partly cancel along the n ops of the busiest worker.
//     1.645 sqrt(common^2 + independent^2 / n)                       1 %, 4 % and 16 ops: 2.3 %
double band(const Answer& predicted);

int exit_status(Verdict verdict);  // 0, 1, 2

// Why times of this run cannot be judged, or "".
std::string why_withheld(const RealRun& real, const StepTimes& times);

std::string comparison_table(const Comparison& c);
std::string comparison_json(const Comparison& c);                // schema pipewright.validation/1
std::string loss_csv(const std::vector<WorkerResult>& workers);  // "step,loss"

}  // namespace pipewright
