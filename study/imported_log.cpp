#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "io/text/format_quantity.hpp"
#include "io/writers/json_fields.hpp"
#include "runtime/measurement.hpp"
#include "study/imported.hpp"

namespace pipewright::study {
namespace {

std::optional<Time> time_of(const LoggedStep& step, const Prediction& predicted) {
  if (step.time) return step.time;
  if (!step.tokens_per_s_device || !(*step.tokens_per_s_device > 0)) return std::nullopt;
  const double tokens =
      static_cast<double>(predicted.global_batch_size) * static_cast<double>(*predicted.sequence_length);
  const double ns = 1e9 * tokens / (*step.tokens_per_s_device * static_cast<double>(predicted.devices));
  if (!(ns < 4e18)) return std::nullopt;
  return Time{std::llround(ns)};
}

// The mean of what is there.
template <class Member>
std::optional<double> mean(const std::vector<const LoggedStep*>& steps, Member member) {
  double sum = 0;
  int count = 0;
  for (const LoggedStep* step : steps)
    if (const std::optional<double>& value = step->*member; value && std::isfinite(*value)) sum += *value, ++count;
  if (count == 0) return std::nullopt;
  return sum / count;
}

struct LoggedFigures {
  double samples = 0;  // per second
  std::optional<double> tokens;
};

LoggedFigures measured_rates(const Prediction& predicted, Time step) {
  LoggedFigures rates{static_cast<double>(predicted.global_batch_size) / seconds(step), std::nullopt};
  if (const auto& length = predicted.sequence_length) rates.tokens = rates.samples * static_cast<double>(*length);
  return rates;
}

// A log of another layout than the plan's is most likely that of another run.
std::string other_layout(const Prediction& predicted, const TrainingLog& log) {
  const LoggedLayout said = logged_layout(log.layout);
  const Plan* const plan = predicted.answer != nullptr ? &predicted.answer->plan : nullptr;
  std::string there, here;
  bool differs = false;
  const auto beside = [&](const char* name, std::optional<std::int64_t> logged, std::optional<std::int64_t> planned) {
    if (!logged || !planned) return;
    there += fmt::format("{}{} {}", there.empty() ? "" : ", ", name, *logged);
    here += fmt::format("{}{} {}", here.empty() ? "" : ", ", name, *planned);
    differs |= *logged != *planned;
  };
  const auto of_plan = [&](auto member) {
    return plan != nullptr ? std::optional<std::int64_t>(plan->*member) : std::nullopt;
  };
  beside("world size", said.devices, predicted.devices);
  beside("TP", said.tensor_parallel, of_plan(&Plan::tensor_parallel));
  beside("PP", said.pipeline_parallel, of_plan(&Plan::stages));
  beside("DP", said.data_parallel, of_plan(&Plan::data_parallel));
  return differs ? fmt::format("{}: the log says {}; the plan has {}", log.file, there, here) : "";
}

// How the scenario would have the batch of the run.
std::string setting_of_batch(const Prediction& predicted, std::int64_t batch) {
  if (predicted.answer == nullptr)
    return fmt::format("simulate the scenario again with a batch of {}, or name the scenario instead", batch);
  const Training& training = predicted.answer->scenario->training;
  const std::int64_t at_once = predicted.answer->plan.micro_batch_size * predicted.answer->plan.data_parallel;
  if (training.global_batch_size)
    return fmt::format("add --set training.global_batch_size={}{}", batch,
                       training.micro_batches ? " --set training.micro_batches=null" : "");
  if (batch > 0 && batch % at_once == 0) return fmt::format("add --set training.micro_batches={}", batch / at_once);
  return "set training.micro_batch_size and training.micro_batches as the run had them";
}

}  // namespace

double error_of(Time predicted, Time measured) {
  if (measured > Time{}) return static_cast<double>(predicted.value) / static_cast<double>(measured.value) - 1;
  return predicted > Time{} ? std::numeric_limits<double>::infinity() : 0;
}

LogComparison compare_log(const Prediction& predicted, TrainingLog log, int warmup) {
  LogComparison c;
  c.log = std::move(log);
  const std::vector<LoggedStep>& all = c.log.steps;
  for (const LoggedStep& step : all)
    if (!step.time && step.tokens_per_s_device && !predicted.sequence_length)
      throw InputError(Place{c.log.file, step.place.line, 1},
                       fmt::format("step {} has tokens per second and no time, which say nothing without the tokens of "
                                   "a sample; {}",
                                   step.number,
                                   predicted.answer != nullptr ? "add --set training.sequence_length=N"
                                                               : "name a scenario that has training.sequence_length"));
  c.other_layout = other_layout(predicted, c.log);
  std::vector<const LoggedStep*> steps;
  const LoggedStep* other_batch = nullptr;
  for (const LoggedStep& step : all)
    if (step.global_batch_size && *step.global_batch_size != predicted.global_batch_size)
      other_batch = &step;
    else
      steps.push_back(&step);
  if (steps.empty())
    throw InputError(other_batch->place, fmt::format("global batch size: {} samples, and the plan has {}; {}",
                                                     *other_batch->global_batch_size, predicted.global_batch_size,
                                                     setting_of_batch(predicted, *other_batch->global_batch_size)));
  const std::size_t logged = steps.size();
  steps.erase(steps.begin(), steps.begin() + std::min<std::ptrdiff_t>(warmup, std::ssize(steps)));
  for (const LoggedStep* step : steps)
    if (const std::optional<Time> time = time_of(*step, predicted); time && *time > Time{}) c.times.push_back(*time);
  if (c.times.empty())
    throw InputError(Place{c.log.file, 0, 0},
                     fmt::format("no step is left of {}, of which the first {} count as warm-up; add --warmup 0, or "
                                 "log more steps",
                                 logged, std::min<std::size_t>(logged, at(warmup))));
  std::ranges::sort(c.times);
  c.median = percentile(c.times, 0.5), c.p5 = percentile(c.times, 0.05), c.p95 = percentile(c.times, 0.95);
  c.first_line = steps.front()->place.line, c.last_line = steps.back()->place.line;
  c.flop_rate_device = mean(steps, &LoggedStep::flop_rate_device);
  for (const LoggedStep* step : steps) {
    if (!step->loss || *step->loss < 0) continue;  // ranks without the loss print -1; one that is no number shows
    if (!c.loss_first) c.loss_first = step->loss;
    c.loss_last = step->loss;
  }
  return c;
}

std::string rows_text(const std::vector<ImportedRow>& rows, int what, int figures) {
  std::string text;
  for (const ImportedRow& row : rows) {
    // What was measured alone may be longer than a figure: it ends where the measured ones end.
    const std::string values = row.predicted.empty()
                                   ? fmt::format("{:>{}}", row.measured, 2 * figures + 1)
                                   : fmt::format("{:>{}} {:>{}}", row.predicted, figures, row.measured, figures);
    std::string line = fmt::format("  {:<{}} {} {:>9}", row.what, what, values, row.error);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string log_title(const LogComparison& c) {
  return fmt::format("log of {}: {} ({} step{} that count, lines {} to {})", c.log.format, c.log.file, c.times.size(),
                     c.times.size() == 1 ? "" : "s", c.first_line, c.last_line);
}

std::vector<ImportedRow> log_rows(const Prediction& predicted, const LogComparison& c) {
  std::vector<ImportedRow> rows = {{"", "predicted", "measured", ""}};
  rows.push_back({"step (median)", short_time(predicted.step_time, 4), short_time(c.median, 4),
                  signed_percent(error_of(predicted.step_time, c.median))});
  rows.push_back({"  p5 to p95 of the steps", "", short_time(c.p5, 4) + " to " + short_time(c.p95, 4), ""});
  const LoggedFigures rates = measured_rates(predicted, c.median);
  rows.push_back({"samples/s", significant(predicted.samples_per_s, 4), significant(rates.samples, 4),
                  signed_percent(predicted.samples_per_s / rates.samples - 1)});
  if (predicted.tokens_per_s && rates.tokens)
    rows.push_back({"tokens/s", significant(*predicted.tokens_per_s, 4), significant(*rates.tokens, 4),
                    signed_percent(*predicted.tokens_per_s / *rates.tokens - 1)});
  if (const auto rate = predicted.flop_rate_device; rate && c.flop_rate_device)
    rows.push_back({"TFLOP/s per device, each by own count", significant(*rate * 1e-12),
                    significant(*c.flop_rate_device * 1e-12), ""});
  const auto memory = [&](const char* what, Bytes counted, Bytes measured) {
    const double error = static_cast<double>(counted.value) / static_cast<double>(measured.value) - 1;
    rows.push_back(
        {what, short_bytes(counted), short_bytes(measured), measured.value > 0 ? signed_percent(error) : ""});
  };
  if (predicted.allocated && c.log.max_allocated)
    memory("memory allocated, most", *predicted.allocated, *c.log.max_allocated);
  if (predicted.reserved && c.log.max_reserved)
    memory("memory reserved, most", *predicted.reserved, *c.log.max_reserved);
  if (c.loss_first)
    rows.push_back({"loss, first and last step", "", fmt::format("{:.4g} to {:.4g}", *c.loss_first, *c.loss_last), ""});
  return rows;
}

std::vector<std::string> log_notes(const LogComparison& c) {
  std::vector<std::string> notes;
  if (!c.log.synthetic.empty()) notes.push_back("the log describes itself as: " + c.log.synthetic);
  const double spread = static_cast<double>(c.p95.value) / static_cast<double>(c.p5.value);
  if (spread > kNoisy)
    notes.push_back(fmt::format("the steps differ: p95/p5 = {:.2f}, more than {:.2f}", spread, kNoisy));
  return notes;
}

void write_log(JsonFields& json, const Prediction& predicted, const LogComparison& c) {
  json.field("file", c.log.file).field("format", c.log.format).field("synthetic", unless_empty(c.log.synthetic));
  json.field("other_layout", unless_empty(c.other_layout)).field("steps", c.times.size());
  json.field("first_line", c.first_line).field("last_line", c.last_line);
  json.object("step_s", [&] {
    json.field("predicted", predicted.step_time).field("measured_median", c.median);
    json.field("measured_p5", c.p5).field("measured_p95", c.p95);
    json.field("error", std::optional(error_of(predicted.step_time, c.median)));
  });
  const LoggedFigures rates = measured_rates(predicted, c.median);
  write_compared(json, "samples_per_s", std::optional(predicted.samples_per_s), std::optional(rates.samples));
  write_compared(json, "tokens_per_s", predicted.tokens_per_s, rates.tokens);
  write_compared(json, "flop_per_s_device", predicted.flop_rate_device, c.flop_rate_device);
  write_compared(json, "allocated_bytes", predicted.allocated, c.log.max_allocated);
  write_compared(json, "reserved_bytes", predicted.reserved, c.log.max_reserved);
  json.field("loss_first", c.loss_first).field("loss_last", c.loss_last);
}

}  // namespace pipewright::study
