// Predicted against measured, of one run: what `validate` prints, writes and judges.
#pragma once

#include <string>
#include <vector>

#include "io/text/names.hpp"
#include "study/judgement.hpp"
#include "study/real_run.hpp"

namespace pipewright::study {
enum class Verdict { Within, Outside, Withheld };
}  // namespace pipewright::study

namespace pipewright::io {
template <>
inline constexpr Name<study::Verdict> kNames<study::Verdict>[] = {
    {"within", study::Verdict::Within}, {"outside", study::Verdict::Outside}, {"withheld", study::Verdict::Withheld}};
}

namespace pipewright::study {

struct RunComparison {
  const Answer& predicted;
  const Answer& measured;
  const std::vector<WorkerResult>& workers;
  const RunPlan& run;
  StepTimes times;
  Judgement judgement;
  double tolerance = 0.1;  // of the step time
  bool forced = false;
  std::string withheld;  // why the run says nothing about time; "": it does

  bool memory_exact() const;  // of every worker, to the byte
  Verdict verdict() const;
  std::string verdict_text() const;
};

// Within: the corrected step is no further off than the tolerance, or the measured one lies in its interval, which is
// the wider of the two on a machine that moves.

// Relative standard error of the predicted step: one error that all ops share (`common`), and one of each op's own,
// which partly cancel along the n ops of the busiest worker.
//     sqrt(common^2 + independent^2 / n + beyond^2)                  1 %, 4 % and 16 ops: 1.4 %
// beyond: standard error of the layers that were measured at other sizes only (`beyond_measured`), else 0.
// 0 where the prices are not those of a profile: nothing is known of their errors.
double error_of_prices(const Answer& predicted, bool common);

int exit_status(Verdict verdict);  // 0, 1, 2

// Members of a group of the run whose all-reduce the profile does not have; 0: it has all.
int all_reduce_not_measured(const RealRun& real, const MachineProfile* profile);

// Why no repetition of a run of so many timed steps has times that can be judged, or "": a property of plan and
// machine.
std::string why_times_say_nothing(const RealRun& real, std::size_t timed);

// How far the measured steps may be from the prediction: by looks at the machine, or else by the probe before each
// step.
Judgement judgement_of(const RealRun& real, const std::vector<WorkerResult>& workers, const StepTimes& times,
                       const std::vector<MachineLook>& looks);

// Why times of this run cannot be judged, that or a machine that changed too much, or "".
std::string why_withheld(const RealRun& real, const Judgement& judgement, const StepTimes& times);

// A row of the table, as text: "step", "33.0 ms", "33.4 ms", "-1.2 %".
struct ComparedRow {
  std::string what, predicted, measured, error;
};
std::vector<ComparedRow> compared_rows(const RunComparison& c);
std::vector<ComparedRow> compared_ops(const RunComparison& c,
                                      std::size_t most);  // those that add most to the error first
std::string interval_text(const RunComparison& c);        // "31 ms to 35 ms: the measured step is in it"
std::string movement_text(const RunComparison& c);        // how much the machine changed, in one line

std::string comparison_table(const RunComparison& c);
std::string comparison_json(const RunComparison& c);  // schema pipewright.validation/1
// One page: predicted next to measured, both timelines on one scale, the verdict. `command`: how it was made.
std::string comparison_html(const RunComparison& c, const std::string& command);
std::string loss_csv(const std::vector<WorkerResult>& workers);  // "step,loss"

}  // namespace pipewright::study
