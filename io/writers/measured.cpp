#include "io/writers/measured.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/folds.hpp"
#include "io/text/quote.hpp"
#include "io/writers/accuracy.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright::io {
namespace {

constexpr std::string_view kErrorsHead =
    "errors of the predictions, magnitudes; bias with signs; rows inside their 90 % interval, median half-width\n";
// Tables whose last columns, below the others, would say nothing.
constexpr int kRunsWidth = 140, kSummaryWidth = 180;
constexpr double kNear = 0.03, kNearly = 0.05;  // of the group's fastest: as good

std::string error_percent(double share) {
  return fmt::format("{:+.1f} %", 100 * share);
}
std::string size(double share) {
  return fmt::format("{:.2f} %", 100 * share);
}
int wide(const TableOptions& options, int least) {
  return options.given ? options.width : std::max(options.width, least);
}
std::string line_of(const Place& place) {
  return fmt::format("{}:{}", place.file.substr(place.file.rfind('/') + 1), place.line);
}

// In the unit that people read: ms, GiB, per second.
struct Shown {
  double unit = 1;
  std::string name;
  int digits = 1;
};
Shown shown(const RunFigure& figure) {
  switch (dimension(figure.sought.figure)) {
    case Dimension::Duration: return {1e-3, " ms", 1};
    case Dimension::Size: return {1024.0 * 1024 * 1024, " GiB", 2};
    case Dimension::Share: return {0.01, " %", 1};
    case Dimension::Rate: return {1, " /s", 2};
    case Dimension::Count:
    case Dimension::Truth: break;
  }
  return {1, "", 0};
}
std::string value_of(const RunFigure& figure, double value) {
  const Shown how = shown(figure);
  return fmt::format("{:.{}f}", value / how.unit, how.digits);
}

std::vector<TextColumn> runs_columns(const MeasuredResult& result) {
  std::vector<TextColumn> columns = {{.head = "line", .left = true, .cells = {}},
                                     {.head = "GPUs", .drop_zero = true, .cells = {}}};
  for (const RunColumn& column : result.columns)
    columns.push_back({.head = column.key.substr(column.key.rfind('.') + 1).substr(0, 6), .cells = {}});
  for (const RunFigure& figure : result.figures) {
    columns.push_back({.head = figure.name + shown(figure).name, .cells = {}});
    columns.push_back({.head = "predicted", .cells = {}});
    columns.push_back({.head = "error", .cells = {}});
  }
  columns.push_back({.head = "", .left = true, .cells = {}});
  for (const PredictedRun& each : result.runs) {
    if (each.run.state != RunState::Compared) continue;
    std::size_t c = 0;
    columns[c++].cells.push_back(line_of(each.run.place));
    columns[c++].cells.push_back(std::to_string(each.run.devices));
    for (const std::string& value : each.run.values)
      columns[c++].cells.push_back(value);
    for (std::size_t f = 0; f < result.figures.size(); ++f) {
      const auto& measured = each.run.figures[f];
      columns[c++].cells.push_back(measured ? value_of(result.figures[f], *measured) : "-");
      columns[c++].cells.push_back(each.figures[f] ? value_of(result.figures[f], *each.figures[f]) : "-");
      columns[c++].cells.push_back(measured ? error_percent(each.off(f).value_or(0)) : "-");
    }
    columns[c++].cells.push_back(std::string(each.run.fitted ? "fitted on" : "") + (each.fits ? "" : " memory short"));
  }
  return columns;
}

// `short_form`: all, subsets and groups only.
std::vector<TextColumn> summary_columns(const std::vector<const MeasuredResult*>& results, bool short_form) {
  std::vector<TextColumn> columns = {{.head = results.size() > 1 ? "set" : "", .left = true, .cells = {}},
                                     {.head = "figure", .left = true, .cells = {}},
                                     {.head = "of", .left = true, .cells = {}},
                                     {.head = "fitted", .cells = {}},
                                     {.head = "scored", .cells = {}},
                                     {.head = "mean", .cells = {}},
                                     {.head = "median", .cells = {}},
                                     {.head = "largest", .cells = {}},
                                     {.head = "bias", .cells = {}},
                                     {.head = "in 90 %", .cells = {}},
                                     {.head = "+-", .cells = {}}};
  for (const MeasuredResult* result : results)
    for (const ErrorSummary& each : result->summaries) {
      const bool layout = !each.split.empty() && each.split != "subset" && each.split != "group";
      if (short_form && layout) continue;
      const std::vector<std::string> cells = {result->name,
                                              each.figure,
                                              layout ? each.split + " " + each.of : each.of,
                                              fmt::format("{}", result->counts.fitted),
                                              fmt::format("{}", each.runs),
                                              size(each.mean),
                                              size(each.median),
                                              size(each.largest),
                                              error_percent(each.bias),
                                              each.ranged > 0 ? fmt::format("{:.0f} %", 100 * each.inside) : "-",
                                              each.ranged > 0 ? fmt::format("{:.1f} %", 100 * each.half_width) : "-"};
      for (std::size_t i = 0; i < cells.size(); ++i)
        columns[i].cells.push_back(cells[i]);
    }
  if (results.size() == 1) columns.erase(columns.begin());
  return columns;
}

int near(const MeasuredResult& result, double share) {
  return static_cast<int>(
      std::ranges::count_if(result.ranking, [&](const RankedGroup& group) { return group.excess <= share; }));
}

std::string ranking_line(const MeasuredResult& result) {
  return fmt::format(
      "In {} of {} groups of one model, batch and number of GPUs the layout predicted fastest is measured within "
      "{:.0f} % of the group's fastest, in {} within {:.0f} %.",
      near(result, kNear), result.ranking.size(), 100 * kNear, near(result, kNearly), 100 * kNearly);
}

std::string ranking_text(const MeasuredResult& result, int width) {
  std::string text = wrapped("ranking: ", ranking_line(result), width);
  for (const RankedGroup& group : result.ranking)
    if (group.excess > kNear)
      text += fmt::format("  missed: {} of {} runs, {} was {} slower than {}\n", line_of(group.place), group.runs,
                          line_of(group.place), size(group.excess), line_of(group.fastest));
  return text;
}

std::string scaling_line(const MeasuredResult& result) {
  auto sum = sum_over<double>(
      result.scaling, [&](const ScalingSeries& each) { return 100 * std::abs(each.predicted - each.measured); });
  return fmt::format(
      "Weak scaling, speed of a device on the most devices over that on the least: {} series, {:.1f} points off in "
      "the mean.",
      result.scaling.size(), sum / static_cast<double>(result.scaling.size()));
}

std::vector<TextColumn> scaling_columns(const MeasuredResult& result) {
  std::vector<TextColumn> columns = {{.head = "series", .left = true, .cells = {}},
                                     {.head = "devices", .cells = {}},
                                     {.head = "measured", .cells = {}},
                                     {.head = "predicted", .cells = {}},
                                     {.head = "points", .cells = {}}};
  for (const ScalingSeries& each : result.scaling) {
    columns[0].cells.push_back(each.of);
    columns[1].cells.push_back(fmt::format("{} to {}", each.least, each.most));
    columns[2].cells.push_back(fmt::format("{:.1f} %", 100 * each.measured));
    columns[3].cells.push_back(fmt::format("{:.1f} %", 100 * each.predicted));
    columns[4].cells.push_back(fmt::format("{:+.1f}", 100 * (each.predicted - each.measured)));
  }
  return columns;
}

std::string constants_text(const MeasuredResult& result, int width) {
  std::string lines;
  for (const PredictedRun& each : result.runs)
    if (each.run.fitted) lines += (lines.empty() ? "" : ", ") + line_of(each.run.place);
  std::string text =
      wrapped("fitted ",
              fmt::format("{} constants, on {}; these runs are in no average:", result.constants.size(), lines), width);
  for (const auto& [constant, value] : result.constants)
    text += wrapped(
        fmt::format("  {} = {}: ",
                    constant.key.substr(
                        constant.key.rfind("device.") == std::string::npos ? 0 : constant.key.rfind("device.") + 7),
                    value),
        constant.meaning, width);
  return text;
}

std::string head_of_counts(const RowCounts& counts) {
  std::string text = fmt::format("{} rows: {} compared", counts.rows, counts.compared);
  if (counts.fitted > 0) text += fmt::format(", {} fitted on", counts.fitted);
  if (counts.failed > 0)
    text += fmt::format(", {} failed, of which {} are predicted to fit (of those that ran: {} of {})", counts.failed,
                        counts.failed_fit, counts.compared_fit, counts.compared);
  return text;
}

// "missing: plan.fsdp 98"
std::vector<std::string> lost(const RowCounts& counts) {
  std::vector<std::string> lines;
  for (const auto& [name, list] : {std::pair{"missing", &counts.missing}, std::pair{"left out", &counts.left_out},
                                   std::pair{"not priced", &counts.unpriced}})
    for (const auto& [why, rows] : *list)
      lines.push_back(fmt::format("{}, {} row{}: {}", name, rows, rows == 1 ? "" : "s", why));
  return lines;
}

// Of a subset, whether what ran and what did not was told apart.
std::vector<std::string> told_apart(const RowCounts& counts) {
  std::vector<std::string> lines;
  for (const SubsetCounts& each : counts.subsets) {
    const int rows = each.compared + each.failed, right = each.compared_fit + each.failed - each.failed_fit;
    lines.push_back(fmt::format(
        "{}: {} of {} rows predicted right ({:.1f} %), {} of {} that failed and {} of {} that ran", each.of, right,
        rows, 100.0 * right / rows, each.failed - each.failed_fit, each.failed, each.compared_fit, each.compared));
  }
  return lines;
}

std::string counts_text(const MeasuredResult& result, int width, std::string_view head) {
  std::string text = wrapped(head, head_of_counts(result.counts), width);
  for (const auto& lines : {lost(result.counts), told_apart(result.counts)})
    for (const std::string& line : lines)
      text += wrapped("  ", line, width);
  return text;
}

}  // namespace

std::string measured_text(const MeasuredResult& result, const TableOptions& options) {
  std::string text = wrapped("", result.title, options.width) + wrapped("source ", result.source, options.width);
  if (!result.note.empty()) text += wrapped("note   ", result.note, options.width);
  if (result.counts.compared + result.counts.fitted > 0)
    text += "\n" + text_table(runs_columns(result), wide(options, kRunsWidth)) + "\n";
  text += counts_text(result, options.width, "");
  if (!result.constants.empty()) text += "\n" + constants_text(result, options.width);
  if (!result.summaries.empty())
    text +=
        "\n" + std::string(kErrorsHead) + text_table(summary_columns({&result}, false), wide(options, kSummaryWidth));
  if (!result.ranking.empty()) text += "\n" + ranking_text(result, options.width);
  if (!result.scaling.empty())
    text += "\n" + wrapped("", scaling_line(result), options.width) +
            text_table(scaling_columns(result), wide(options, kRunsWidth));
  return text;
}

std::string measured_summary(const std::vector<MeasuredResult>& results, const std::vector<TableResult>& published,
                             const TableOptions& options) {
  auto all = mapped<const MeasuredResult*>(results, [](const MeasuredResult& each) { return &each; });
  std::string text = std::string(kErrorsHead) + text_table(summary_columns(all, true), wide(options, kSummaryWidth)) +
                     "\nranking within 3 % (5 %) of the fastest\n";
  for (const MeasuredResult& each : results)
    if (!each.ranking.empty())
      text += fmt::format("  {}: {} ({}) of {} groups\n", each.name, near(each, kNear), near(each, kNearly),
                          each.ranking.size());
  for (const MeasuredResult& each : results)
    if (!each.scaling.empty()) text += wrapped(fmt::format("\n{}: ", each.name), scaling_line(each), options.width);
  text += "\nrows\n";
  for (const MeasuredResult& each : results)
    text += counts_text(each, options.width, "  " + each.name + ": ");
  if (!published.empty()) text += "\npublished tables\n" + accuracy_summary_text(published, options);
  return text;
}

std::string measured_markdown(const std::vector<MeasuredResult>& results, const std::vector<TableResult>& published) {
  auto all = mapped<const MeasuredResult*>(results, [](const MeasuredResult& each) { return &each; });
  std::string text =
      "# Measured runs against predictions\n\n"
      "Written by `pipewright reproduce runs --data DIR --md`. The runs do not ship with pipewright; each scenario in\n"
      "`scenarios/runs` names its source and says what the columns of the file mean. Device presets are taken as they\n"
      "ship; where constants were fitted, the lines are named by a rule beforehand and stay out of every average.\n"
      "Errors are relative, as magnitudes; the bias has its sign. Fitted: how many rows constants were fitted on. In "
      "90 %:\n"
      "the share of scored rows inside their 90 % interval; +-: the median of its half-widths.\n\n" +
      markdown_table(summary_columns(all, true));
  if (!published.empty())
    text += "\nTables of papers, from [accuracy.md](accuracy.md), where each cell stands:\n\n" +
            accuracy_summary_markdown(published);
  for (const MeasuredResult& each : results) {
    text += fmt::format("\n## {}\n\n{}\n\nSource: {}\n", each.name, each.title, each.source);
    if (!each.note.empty()) text += "\n" + each.note + "\n";
    text += "\n" + head_of_counts(each.counts) + ".\n";
    for (const auto& lines : {lost(each.counts), told_apart(each.counts)}) {
      text += lines.empty() ? "" : "\n";
      for (const std::string& line : lines)
        text += "- " + line + "\n";
    }
    if (!each.summaries.empty()) text += "\n" + markdown_table(summary_columns({&each}, false));
    if (!each.ranking.empty()) text += "\n" + ranking_line(each) + "\n";
    if (!each.scaling.empty()) text += "\n" + scaling_line(each) + "\n\n" + markdown_table(scaling_columns(each));
  }
  return text;
}

std::string measured_csv(const std::vector<MeasuredResult>& results) {
  constexpr std::string_view kStates[] = {"compared", "left_out", "missing", "failed", "not_priced"};
  std::string text =
      "set,file,line,group,devices,settings,state,why,figure,measured,predicted,error,fitted,fits,low_90,high_"
      "90\n";  // SI base units
  for (const MeasuredResult& result : results)
    for (const PredictedRun& each : result.runs) {
      const std::string head = fmt::format(
          "{},{},{},{},{},{},{},{}", csv_field(result.name), csv_field(each.run.place.file), each.run.place.line,
          csv_field(each.run.group), each.run.devices, csv_field(fmt::format("{}", fmt::join(each.run.set, " "))),
          kStates[at(each.run.state)], csv_field(each.run.why));
      if (each.figures.empty()) text += fmt::format("{},,,,,{},{},,\n", head, each.run.fitted, each.fits);
      const auto number = [](const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; };
      for (std::size_t f = 0; f < each.figures.size(); ++f) {
        const auto range = each.range(f);
        text += fmt::format("{},{},{},{},{},{},{},{}\n", head, csv_field(result.figures[f].name),
                            number(each.run.figures[f]), number(each.figures[f]), number(each.off(f)), each.run.fitted,
                            each.fits, range ? fmt::format("{},{}", range->low, range->high) : ",");
      }
    }
  return text;
}

}  // namespace pipewright::io
