// Predicted against measured, of one run: what `validate` prints, writes and judges.
#pragma once

#include <string>
#include <vector>

#include "cli/real_run.hpp"

namespace pipewright {

enum class Verdict { Within, Outside, Withheld };

struct RunComparison {
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
//     1.645 sqrt(common^2 + independent^2 / n + beyond^2)            1 %, 4 % and 16 ops: 2.3 %
// beyond: standard error of the layers that were measured at other sizes only (`beyond_measured`), else 0.
// 0 where the prices are not those of a profile: nothing is known of their errors.
double band(const Answer& predicted);

int exit_status(Verdict verdict);  // 0, 1, 2

// How fast cores were in the timed steps over how fast they were while they were calibrated, by the same piece of
// arithmetic (`probe`); 1 where there is no profile, or it has none.
double speed_of_cores(const MachineProfile* profile, const std::vector<WorkerResult>& workers, const StepTimes& times);

// Whether they were off by more than 5 %, so that the profile says nothing about the run's times.
bool at_other_speed(const RunComparison& comparison);

// Why no repetition of this run has times that can be judged, or "": a property of plan and machine.
std::string why_times_say_nothing(const RealRun& real, const StepTimes& times);

// Why times of this run cannot be judged, that or noise, or "".
std::string why_withheld(const RealRun& real, const std::vector<WorkerResult>& workers, const StepTimes& times);

// A row of the table, as text: "step", "33.0 ms", "33.4 ms", "-1.2 %".
struct ComparedRow {
  std::string what, predicted, measured, error;
};
std::vector<ComparedRow> compared_rows(const RunComparison& c);
std::vector<ComparedRow> compared_ops(const RunComparison& c,
                                      std::size_t most);  // those that add most to the error first
std::string band_text(const RunComparison& c);  // "31 ms to 35 ms: the measured step is in it"; "": there is no band

std::string comparison_table(const RunComparison& c);
std::string comparison_json(const RunComparison& c);             // schema pipewright.validation/1
std::string loss_csv(const std::vector<WorkerResult>& workers);  // "step,loss"

}  // namespace pipewright
