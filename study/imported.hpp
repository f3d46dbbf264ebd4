// Runs of others next to a prediction: what `validate --log` and `--trace` print and judge.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/answers/report.hpp"
#include "io/import/kineto.hpp"
#include "io/import/training_log.hpp"
#include "io/writers/json_fields.hpp"

namespace pipewright::study {

// predicted / measured - 1.
double error_of(Time predicted, Time measured);

// What a run is put next to: a scenario that was simulated just now, or a result that `simulate` wrote.
struct Prediction {
  std::string name;
  Time step_time;
  double samples_per_s = 0;
  std::optional<double> tokens_per_s, flop_rate_device;
  std::int64_t global_batch_size = 0, devices = 0;
  std::optional<std::int64_t> sequence_length;
  std::optional<Bytes> allocated, reserved;  // of the fullest device: by the model, by a caching allocator
  const Answer* answer = nullptr;            // null: a result, which has no times of single actions
};
Prediction prediction_of(const Answer& answer);

// Of a "pipewright.result/1". Throws InputError.
Prediction read_prediction(const std::string& path);

// A line of a table: a figure of both, as text.
struct ImportedRow {
  std::string what, predicted, measured, error;
};
// Columns of so many characters; the first row is the head.
std::string rows_text(const std::vector<ImportedRow>& rows, int what, int figures);

// ---- logs -----------------------------------------------------------------------------------------------------------

struct LogComparison {
  TrainingLog log;
  std::vector<Time> times;  // of the steps that count, sorted
  Time median, p5, p95;
  int first_line = 0, last_line = 0;  // of these steps
  std::optional<double> flop_rate_device, loss_first, loss_last;
  std::string other_layout;  // "the log says world size 64, TP 4, ...; the plan has ..."; "": nothing speaks against it
};

// Steps behind the first `warmup` ones, with the plan's batch. A step of torchtitan takes
//     samples * sequence length / (tps * devices)       tps: tokens per second and device, as its log has them
// 8 samples of 1024 tokens on 4 devices at 2048 tokens/s each: 1 s.   tests/cli/import_run_test.cpp
// Throws InputError where no step is left, where none has the plan's batch, or where nothing says how long a sample is.
LogComparison compare_log(const Prediction& predicted, TrainingLog log, int warmup);
std::string log_title(const LogComparison& c);
std::vector<ImportedRow> log_rows(const Prediction& predicted, const LogComparison& c);
std::vector<std::string> log_notes(const LogComparison& c);
void write_log(JsonFields& json, const Prediction& predicted, const LogComparison& c);

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
std::string trace_title(const TraceComparison& c);
std::vector<ImportedRow> trace_rows(const TraceComparison& c);
std::vector<std::string> trace_notes(const TraceComparison& c);
void write_trace(JsonFields& json, const TraceComparison& c);

// The log of a file, the trace of each: as the framework wrote it, or a measured run (io/import/run_file.hpp). Throws
// InputError.
TrainingLog imported_log_of(const std::string& path);
std::vector<ActionTrace> imported_traces_of(const std::vector<std::string>& paths);

// ---- both, and what follows -----------------------------------------------------------------------------------------

struct ImportedComparison {
  const Prediction& predicted;
  std::optional<LogComparison> log;
  std::optional<TraceComparison> trace;
  std::optional<double> tolerance;  // nothing: nothing is judged
  bool within = true;
  std::string verdict;  // in words
};
// Nothing is judged without a tolerance, a share of the step time.
ImportedComparison judged(const Prediction& predicted, std::optional<LogComparison> log,
                          std::optional<TraceComparison> trace, std::optional<double> tolerance);
std::string imported_text(const ImportedComparison& c);
std::string imported_json(const ImportedComparison& c);                              // schema pipewright.imported/1
std::string imported_html(const ImportedComparison& c, const std::string& command);  // `command`: how it was made

}  // namespace pipewright::study
