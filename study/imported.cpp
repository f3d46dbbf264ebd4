// What an imported run is compared with, the verdict, and the comparison as text, JSON and a page.
#include "study/imported.hpp"

#include <cmath>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/cost/low_precision.hpp"
#include "io/import/run_file.hpp"
#include "io/read/read_file.hpp"
#include "io/read/read_result.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/utf8.hpp"
#include "io/writers/html_page.hpp"
#include "study/documents.hpp"

namespace pipewright::study {
namespace {

constexpr std::size_t kLargestResult = std::size_t{256} << 20;  // 4096 workers are 6 MB

std::optional<double> flop_rate_device(const Answer& answer) {
  const Cluster& cluster = answer.scenario->cluster;
  const auto peak = cluster.device.peak.find(rated_precision(*answer.scenario));
  if (!answer.report.mfu || cluster.classes() > 1 || peak == cluster.device.peak.end()) return std::nullopt;
  return *answer.report.mfu * peak->second.value;
}

Time step_time_of(double seconds, const std::string& path) {
  if (!(seconds >= 0 && seconds < 4e9))
    throw InputError(Place{path, 0, 0}, "step_time_s is not the time of a step; write the result again");
  return Time{std::llround(seconds * 1e9)};
}

std::string table_text(const std::string& title, const std::vector<ImportedRow>& rows,
                       const std::vector<std::string>& notes, int what, int figures) {
  std::string text = "\n" + title + "\n" + rows_text(rows, what, figures);
  for (const std::string& note : notes)
    text += "  " + note + "\n";
  return text;
}

// The first row is the head.
std::vector<TextColumn> comparison_columns(const std::vector<ImportedRow>& rows) {
  std::vector<TextColumn> all = {{"", true}, {"predicted"}, {"measured"}, {"error"}};
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const std::string* const cells[] = {&rows[i].what, &rows[i].predicted, &rows[i].measured, &rows[i].error};
    for (std::size_t k = 0; k < all.size(); ++k)
      all[k].cells.push_back(*cells[k]);
  }
  return all;
}

void add_table(HtmlPage& page, const std::string& title, const std::vector<ImportedRow>& rows,
               const std::vector<std::string>& notes) {
  page.heading(title);
  page.table(comparison_columns(rows));
  if (!notes.empty()) page.list(notes);
}

void write(JsonFields& json, const ImportedComparison& c) {
  json.field("scenario", c.predicted.name);
  const std::string_view verdict = c.within ? "within" : "outside";
  json.maybe_word("verdict", c.tolerance ? std::optional(verdict) : std::nullopt, {"within", "outside"});
  json.field("tolerance", c.tolerance);
  json.maybe("log", c.log, [&](const LogComparison& log) { write_log(json, c.predicted, log); });
  json.maybe("trace", c.trace, [&](const TraceComparison& trace) { write_trace(json, trace); });
}

}  // namespace

TrainingLog imported_log_of(const std::string& path) {
  if (!is_run_file(path)) return read_training_log(path);
  ImportedRun run = read_run_file(path);
  if (!run.log) throw InputError(path + ": is a run without a log; give it with --trace");
  return *std::move(run.log);
}

std::vector<ActionTrace> imported_traces_of(const std::vector<std::string>& paths) {
  std::vector<ActionTrace> traces;
  for (const std::string& path : paths) {
    if (!is_run_file(path)) {
      traces.push_back(read_action_trace(path));
      continue;
    }
    ImportedRun run = read_run_file(path);
    if (!run.trace)
      throw InputError(path + (run.log
                                   ? ": is a run without a trace; give it with --log"
                                   : ": is a run without actions of a pipeline; put it next to another with compare"));
    traces.push_back(*std::move(run.trace));
  }
  return traces;
}

Prediction prediction_of(const Answer& answer) {
  Prediction p{.name = answer.scenario->name,
               .step_time = answer.report.step_time,
               .samples_per_s = answer.report.samples_per_s,
               .tokens_per_s = answer.report.tokens_per_s,
               .flop_rate_device = flop_rate_device(answer),
               .global_batch_size = answer.plan.global_batch_size,
               .devices = answer.plan.devices(),
               .sequence_length = answer.scenario->training.sequence_length,
               .answer = &answer};
  // What the allocator of a framework has: not what context and libraries take next to it.
  if (const StageReport* full = fullest(answer.report))
    p.allocated = full->need.model + full->need.anchored,
    p.reserved = full->need.with_reserve - full->memory.bytes.reserve;
  return p;
}

Prediction read_prediction(const std::string& path) {
  const ResultFigures figures = parse_result(read_file(path, kLargestResult), path);
  Prediction p{.name = figures.name,
               .step_time = step_time_of(figures.step_time, path),
               .samples_per_s = figures.samples_per_s,
               .tokens_per_s = figures.tokens_per_s,
               .global_batch_size = figures.global_batch_size,
               .devices = figures.devices,
               .sequence_length = figures.sequence_length};
  if (p.global_batch_size < 1 || p.devices < 1)
    throw InputError(Place{path, 0, 0}, "has a plan without samples or devices; write the result again");
  const ResultFigures::Stage* full = nullptr;
  for (const auto& stage : figures.stages)
    if (full == nullptr || stage.capacity - stage.need < full->capacity - full->need) full = &stage;
  const auto bytes = [](double size) { return Bytes{size >= 0 && size < 4e18 ? std::llround(size) : 0}; };
  if (full != nullptr) p.allocated = bytes(full->model), p.reserved = bytes(full->need - full->reserve);
  return p;
}

ImportedComparison judged(const Prediction& predicted, std::optional<LogComparison> log,
                          std::optional<TraceComparison> trace, std::optional<double> tolerance) {
  ImportedComparison c{predicted, std::move(log), std::move(trace), tolerance, true, ""};
  if (!tolerance) return c;
  const auto judge = [&](const char* what, double error) {
    const bool within = std::abs(error) <= *tolerance;
    c.within &= within;
    c.verdict += fmt::format("{}{} {} {} the measured {}", c.verdict.empty() ? "" : "; ",
                             within ? "within" : "more than", percent(*tolerance), within ? "of" : "off", what);
  };
  if (c.log) judge("step", error_of(predicted.step_time, c.log->median));
  if (c.trace)
    judge(c.trace->starts ? "span of actions" : "actions",
          error_of(c.trace->predicted_step(), c.trace->measured_step()));
  return c;
}

std::string imported_text(const ImportedComparison& c) {
  std::string text = one_line(c.predicted.name) + ": predicted, next to a run that was imported\n";
  if (c.log) text += table_text(log_title(*c.log), log_rows(c.predicted, *c.log), log_notes(*c.log), 38, 14);
  if (c.trace) text += table_text(trace_title(*c.trace), trace_rows(*c.trace), trace_notes(*c.trace), 36, 12);
  return c.tolerance ? text + "\n  verdict: " + c.verdict + "\n" : text;
}

constinit const JsonDocument kImportedDocument{"pipewright.imported/1",
                                               [](JsonFields& json) {
                                                 write(json, {Prediction(), {}, {}, {}, true, {}});
                                               },
                                               nullptr, false};

std::string imported_json(const ImportedComparison& c) {
  return kImportedDocument.text([&](JsonFields& json) { write(json, c); });
}

std::string imported_html(const ImportedComparison& c, const std::string& command) {
  HtmlPage page(c.predicted.name, "Predicted, next to a run that was imported.");
  const Time predicted = c.log ? c.predicted.step_time : c.trace->predicted_step();
  const Time measured = c.log ? c.log->median : c.trace->measured_step();
  std::vector<HtmlPage::Figure> figures = {
      {"error of the step", signed_percent(error_of(predicted, measured)), "predicted / measured - 1"}};
  if (c.tolerance) figures.push_back({"verdict", c.within ? "within" : "outside", c.verdict});
  page.figures(figures);
  if (c.log && !c.log->other_layout.empty()) page.warning(c.log->other_layout + "; are they of one run?");
  if (c.log) add_table(page, log_title(*c.log), log_rows(c.predicted, *c.log), log_notes(*c.log));
  if (c.trace) add_table(page, trace_title(*c.trace), trace_rows(*c.trace), trace_notes(*c.trace));
  page.heading("Made by");
  page.text_block(command);
  return page.document();
}

}  // namespace pipewright::study
