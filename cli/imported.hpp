// Runs of others beside a prediction: what `validate --log` and `--trace` print and judge.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/report.hpp"
#include "io/import/kineto.hpp"
#include "io/import/training_log.hpp"
#include "io/writers/json_text.hpp"

namespace pipewright {

// predicted / measured - 1.
double error_of(Time predicted, Time measured);

// ---- logs -----------------------------------------------------------------------------------------------------------

struct LogComparison {
  TrainingLog log;
  std::vector<Time> times;  // of the steps that count, sorted
  Time median, p5, p95;
  int first_line = 0, last_line = 0;  // of these steps
  std::optional<double> flop_rate_device, loss_first, loss_last;
};

// Steps behind the first `warmup` ones, with the plan's batch. A step of torchtitan takes
//     samples * sequence length / (tps * devices)       tps: tokens per second and device, as its log has them
// 8 samples of 1024 tokens on 4 devices at 2048 tokens/s each: 1 s.   tests/cli/import_run_test.cpp
// Throws InputError where no step is left, where none has the plan's batch, or where nothing says how long a sample is.
LogComparison compare_log(const Answer& predicted, TrainingLog log, int warmup);
std::string log_table(const Answer& predicted, const LogComparison& c);
void write_log(JsonText& json, const Answer& predicted, const LogComparison& c);

// ---- traces ---------------------------------------------------------------------------------------------------------

// One action, over all its occurrences (steps, ranks): medians. Starts count from the first action of the same rank in
// the same step, so that the clocks of ranks need not agree.
struct ComparedAction {
  char kind = 'F';
  std::int64_t stage = 0, micro_batch = 0;
  Time predicted, measured;
  Time predicted_start, measured_start;
  std::size_t occurrences = 0;
};

struct StageSpan {  // first start to last end of the actions of one rank in one step
  std::int64_t stage = 0;
  Time predicted, measured;
};

struct TraceComparison {
  std::vector<std::string> files;
  bool on_device = true;  // false: at least one file has times of the host only
  bool starts = true;     // false: a file begins or ends within a step
  std::size_t steps = 0;  // per file, of the one with fewest
  std::int64_t other_actions = 0, absent = 0;
  std::vector<ComparedAction> actions;  // by stage, micro-batch, kind
  std::vector<StageSpan> spans;         // by stage, of the ranks that run it; empty without `starts`

  // Longest span, predicted and measured: a step but for its update. Without spans the sums of all durations.
  Time predicted_step() const, measured_step() const;
};

// Throws InputError where a trace has stages, micro-batches or kinds of action that the plan has not.
TraceComparison compare_traces(const Answer& predicted, const std::vector<ActionTrace>& traces);
std::string trace_table(const TraceComparison& c);
void write_trace(JsonText& json, const TraceComparison& c);

}  // namespace pipewright
