#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "cli/imported.hpp"
#include "io/format_quantity.hpp"
#include "runtime/measurement.hpp"

namespace pipewright {
namespace {

// What the allocator of a framework has: not what context and libraries take beside it.
Bytes in_allocator(const StageReport& stage) {
  return stage.need.with_reserve - stage.memory.bytes.reserve;
}

std::optional<double> predicted_flop_rate(const Answer& answer) {
  const Cluster& cluster = answer.scenario->cluster;
  const auto peak = cluster.device.peak.find(answer.scenario->training.precision);
  if (!answer.report.mfu || cluster.classes() > 1 || peak == cluster.device.peak.end()) return std::nullopt;
  return *answer.report.mfu * peak->second.value;
}

std::optional<Time> time_of(const LoggedStep& step, const Answer& predicted) {
  if (step.time) return step.time;
  if (!step.tokens_per_s_device || !(*step.tokens_per_s_device > 0)) return std::nullopt;
  const double tokens = static_cast<double>(predicted.plan.global_batch_size) *
                        static_cast<double>(*predicted.scenario->training.sequence_length);
  const double ns = 1e9 * tokens / (*step.tokens_per_s_device * predicted.plan.devices());
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

std::string row(const std::string& what, const std::string& predicted, const std::string& measured,
                std::optional<double> error) {
  return fmt::format("  {:<30} {:>14} {:>14} {:>9}\n", what, predicted, measured,
                     error ? fmt::format("{:+.1f} %", 100 * *error) : "");
}

struct Figures {
  double samples = 0;  // per second
  std::optional<double> tokens;
};

Figures measured_rates(const Answer& predicted, Time step) {
  Figures rates{static_cast<double>(predicted.plan.global_batch_size) / seconds(step), std::nullopt};
  if (const auto& length = predicted.scenario->training.sequence_length)
    rates.tokens = rates.samples * static_cast<double>(*length);
  return rates;
}

// How the scenario would have the batch of the run.
std::string setting_of_batch(const Answer& predicted, std::int64_t batch) {
  const Training& training = predicted.scenario->training;
  const std::int64_t at_once = predicted.plan.micro_batch_size * predicted.plan.data_parallel;
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

LogComparison compare_log(const Answer& predicted, TrainingLog log, int warmup) {
  LogComparison c;
  c.log = std::move(log);
  const Training& training = predicted.scenario->training;
  const std::vector<LoggedStep>& all = c.log.steps;
  const bool timed = std::any_of(all.begin(), all.end(), [](const LoggedStep& step) { return step.time.has_value(); });
  if (!timed && !training.sequence_length)
    throw InputError(Place{c.log.file, all.front().place.line, 1},
                     "tokens per second say nothing without the tokens of a sample; add --set "
                     "training.sequence_length=N");
  std::vector<const LoggedStep*> steps;
  const LoggedStep* other_batch = nullptr;
  for (const LoggedStep& step : all)
    if (step.global_batch_size && *step.global_batch_size != predicted.plan.global_batch_size)
      other_batch = &step;
    else
      steps.push_back(&step);
  if (steps.empty())
    throw InputError(other_batch->place, fmt::format("global batch size: {} samples, and the plan has {}; {}",
                                                     *other_batch->global_batch_size, predicted.plan.global_batch_size,
                                                     setting_of_batch(predicted, *other_batch->global_batch_size)));
  const std::size_t logged = steps.size();
  steps.erase(steps.begin(), steps.begin() + std::min<std::ptrdiff_t>(warmup, std::ssize(steps)));
  for (const LoggedStep* step : steps)
    if (const std::optional<Time> time = time_of(*step, predicted); time && *time > Time{}) c.times.push_back(*time);
  if (c.times.empty())
    throw InputError(Place{c.log.file, 0, 0},
                     fmt::format("no step is left of {}, of which the first {} count as warm-up; add --warmup 0, or "
                                 "log more steps",
                                 logged, std::min<std::size_t>(logged, static_cast<std::size_t>(warmup))));
  std::sort(c.times.begin(), c.times.end());
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

std::string log_table(const Answer& predicted, const LogComparison& c) {
  const Report& report = predicted.report;
  std::string text = fmt::format("\nlog of {}: {} ({} step{} that count, lines {} to {})\n", c.log.format, c.log.file,
                                 c.times.size(), c.times.size() == 1 ? "" : "s", c.first_line, c.last_line) +
                     row("", "predicted", "measured", std::nullopt);
  text += row("step (median)", short_time(report.step_time, 4), short_time(c.median, 4),
              error_of(report.step_time, c.median));
  text += fmt::format("  {:<30} {:>14} {:>14}\n", "  p5 to p95 of the steps", "",
                      short_time(c.p5, 4) + " to " + short_time(c.p95, 4));
  const Figures rates = measured_rates(predicted, c.median);
  text += row("samples/s", significant(report.samples_per_s, 4), significant(rates.samples, 4),
              report.samples_per_s / rates.samples - 1);
  if (report.tokens_per_s && rates.tokens)
    text += row("tokens/s", significant(*report.tokens_per_s, 4), significant(*rates.tokens, 4),
                *report.tokens_per_s / *rates.tokens - 1);
  if (const auto rate = predicted_flop_rate(predicted); rate && c.flop_rate_device)
    text += row("TFLOP/s per device, each by own count", significant(*rate * 1e-12),
                significant(*c.flop_rate_device * 1e-12), std::nullopt);
  const auto memory = [&](const char* what, Bytes counted, Bytes measured) {
    text += row(what, short_bytes(counted), short_bytes(measured),
                measured.value > 0
                    ? std::optional(static_cast<double>(counted.value) / static_cast<double>(measured.value) - 1)
                    : std::nullopt);
  };
  if (const StageReport* full = fullest(report)) {
    if (c.log.max_allocated) memory("memory allocated, most", full->need.model, *c.log.max_allocated);
    if (c.log.max_reserved) memory("memory reserved, most", in_allocator(*full), *c.log.max_reserved);
  }
  if (c.loss_first)
    text += fmt::format("  {:<30} {:>14} {:>14}\n", "loss, first and last step", "",
                        fmt::format("{:.4g} to {:.4g}", *c.loss_first, *c.loss_last));
  const double spread = static_cast<double>(c.p95.value) / static_cast<double>(c.p5.value);
  if (spread > kNoisy) text += fmt::format("  the steps differ: p95/p5 = {:.2f}, more than {:.2f}\n", spread, kNoisy);
  return text;
}

void write_log(JsonText& json, const Answer& predicted, const LogComparison& c) {
  const Report& report = predicted.report;
  const Figures rates = measured_rates(predicted, c.median);
  const auto pair = [&](std::string_view key, const auto& counted, const auto& measured) {
    json.key(key).open('{').field("predicted", counted).field("measured", measured).close();
  };
  json.open('{').field("file", c.log.file).field("format", c.log.format);
  json.field("steps", static_cast<std::int64_t>(c.times.size()));
  json.field("first_line", c.first_line).field("last_line", c.last_line);
  json.key("step_s").open('{').field("predicted", report.step_time).field("measured_median", c.median);
  json.field("measured_p5", c.p5).field("measured_p95", c.p95).field("error", error_of(report.step_time, c.median));
  json.close();
  pair("samples_per_s", report.samples_per_s, rates.samples);
  pair("tokens_per_s", report.tokens_per_s, rates.tokens);
  pair("flop_per_s_device", predicted_flop_rate(predicted), c.flop_rate_device);
  const StageReport* full = fullest(report);
  pair("allocated_bytes", full ? std::optional(full->need.model) : std::nullopt, c.log.max_allocated);
  pair("reserved_bytes", full ? std::optional(in_allocator(*full)) : std::nullopt, c.log.max_reserved);
  json.field("loss_first", c.loss_first).field("loss_last", c.loss_last).close();
}

}  // namespace pipewright
