#include "study/two_runs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/check.hpp"
#include "io/import/run_file.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/utf8.hpp"
#include "runtime/measurement.hpp"

namespace pipewright {
namespace {

constexpr std::size_t kWarmup = 3;  // first steps of a log that do not count, as validate has it
constexpr std::size_t kLongestName = 60;

enum class Kind { Time, Bytes, Rate };

// A figure of both runs: of those that only one of them has, nothing is said.
struct Row {
  std::string what;
  Kind kind;
  double a, b;
};

using Figures = std::map<std::string, std::pair<Kind, double>>;  // by name, which sorts them as they are shown

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void add_median(Figures& figures, const std::string& what, Kind kind, const std::vector<double>& values) {
  if (!values.empty()) figures[what] = {kind, median(values)};
}

void log_figures(const TrainingLog& log, Figures& figures) {
  std::vector<double> times, tokens, rates, samples;
  const std::size_t first = log.steps.size() > kWarmup ? kWarmup : 0;
  for (std::size_t i = first; i < log.steps.size(); ++i) {
    const LoggedStep& step = log.steps[i];
    if (step.time) times.push_back(seconds(*step.time));
    if (step.time && step.global_batch_size)
      samples.push_back(static_cast<double>(*step.global_batch_size) / seconds(*step.time));
    if (step.tokens_per_s_device) tokens.push_back(*step.tokens_per_s_device);
    if (step.flop_rate_device && std::isfinite(*step.flop_rate_device)) rates.push_back(*step.flop_rate_device * 1e-12);
  }
  add_median(figures, "1 step (median)", Kind::Time, times);
  add_median(figures, "2 samples/s", Kind::Rate, samples);
  add_median(figures, "3 tokens/s per device", Kind::Rate, tokens);
  add_median(figures, "4 TFLOP/s per device", Kind::Rate, rates);
  if (log.max_allocated)
    figures["5 memory allocated, most"] = {Kind::Bytes, static_cast<double>(log.max_allocated->value)};
  if (log.max_reserved)
    figures["6 memory reserved, most"] = {Kind::Bytes, static_cast<double>(log.max_reserved->value)};
}

void trace_figures(const ActionTrace& trace, Figures& figures) {
  std::map<std::string, std::vector<double>> kinds;
  for (const TracedAction& action : trace.actions)
    kinds[fmt::format("7 stage {:3} {}", action.stage, action.kind)].push_back(seconds(action.duration));
  for (const auto& [kind, durations] : kinds)
    add_median(figures, kind, Kind::Time, durations);
}

std::vector<Row> common(const ImportedRun& a, const ImportedRun& b) {
  Figures of_a, of_b;
  for (const auto& [run, figures] : {std::pair(&a, &of_a), std::pair(&b, &of_b)}) {
    if (run->log) log_figures(*run->log, *figures);
    if (run->trace) trace_figures(*run->trace, *figures);
  }
  std::vector<Row> rows;
  for (const auto& [what, figure] : of_a)
    if (const auto other = of_b.find(what); other != of_b.end())
      rows.push_back({what.substr(2), figure.first, figure.second, other->second.second});
  return rows;
}

std::string shown(Kind kind, double value) {
  switch (kind) {
    case Kind::Time: return short_time(Time{std::llround(std::min(value, 4e9) * 1e9)}, 4);
    case Kind::Bytes: return short_bytes(Bytes{std::llround(std::min(value, 4e18))});
    default: return significant(value, 4);
  }
}

std::string ratio(const Row& row) {
  return row.a > 0 ? signed_percent(row.b / row.a - 1) : "";
}

std::string table(const std::vector<Row>& rows) {
  std::string text = fmt::format("  {:<{}} {:>12} {:>12} {:>9}\n", "", kLongestName, "A", "B", "B to A");
  for (const Row& row : rows)
    text += fmt::format("  {:<{}} {:>12} {:>12} {:>9}\n", row.what.substr(0, kLongestName), kLongestName,
                        shown(row.kind, row.a), shown(row.kind, row.b), ratio(row));
  return text;
}

}  // namespace

std::string two_runs_text(const std::string& first, const std::string& second) {
  const ImportedRun a = read_run_file(first), b = read_run_file(second);
  const std::vector<Row> figures = common(a, b);
  if (figures.empty())
    throw InputError("compare: " + first + " and " + second +
                     " have no figure in common; compare two logs or two traces");
  return fmt::format("two measured runs\n  A  {} ({})\n  B  {} ({})\n\n{}", one_line(first), one_line(a.source.format),
                     one_line(second), one_line(b.source.format), table(figures));
}

}  // namespace pipewright
