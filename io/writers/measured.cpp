#include "io/writers/measured.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "io/quote.hpp"
#include "io/writers/text_table.hpp"

namespace pipewright {
namespace {

constexpr double kNear = 0.03;  // of the group's fastest: as good

std::string percent(double share) {
  return fmt::format("{:+.1f} %", 100 * share);
}
std::string size(double share) {
  return fmt::format("{:.2f} %", 100 * share);
}
std::string milliseconds(double seconds) {
  return fmt::format("{:.1f}", seconds * 1e3);
}
std::string line_of(const Place& place) {
  return fmt::format("{}:{}", place.file.substr(place.file.rfind('/') + 1), place.line);
}

std::vector<std::string> heads_of(const MeasuredResult& result) {
  std::vector<std::string> heads;
  for (const RunColumn& column : result.columns)
    heads.push_back(column.key.substr(column.key.rfind('.') + 1));
  return heads;
}

std::string runs_table(const MeasuredResult& result, int width) {
  std::vector<TextColumn> columns = {{.head = "line", .left = true, .cells = {}}, {.head = "GPUs", .cells = {}}};
  for (const std::string& head : heads_of(result))
    columns.push_back({.head = head.substr(0, 6), .cells = {}});
  columns.push_back({.head = "measured ms", .cells = {}});
  columns.push_back({.head = "predicted ms", .cells = {}});
  columns.push_back({.head = "error", .cells = {}});
  columns.push_back({.head = "", .left = true, .cells = {}});
  for (const PredictedRun& each : result.runs) {
    std::size_t c = 0;
    columns[c++].cells.push_back(line_of(each.run.place));
    columns[c++].cells.push_back(std::to_string(each.run.devices));
    for (const std::int64_t value : each.run.values)
      columns[c++].cells.push_back(std::to_string(value));
    columns[c++].cells.push_back(milliseconds(each.run.seconds));
    columns[c++].cells.push_back(milliseconds(each.seconds));
    columns[c++].cells.push_back(percent(each.error()));
    columns[c++].cells.push_back(std::string(each.run.fitted ? "fitted on" : "") + (each.fits ? "" : " memory short"));
  }
  return text_table(columns, width);
}

std::string summary_table(const MeasuredResult& result, int width) {
  std::vector<TextColumn> columns = {{.head = "split", .left = true, .cells = {}},
                                     {.head = "of", .left = true, .cells = {}},
                                     {.head = "runs", .cells = {}},
                                     {.head = "mean", .cells = {}},
                                     {.head = "median", .cells = {}},
                                     {.head = "largest", .cells = {}},
                                     {.head = "bias", .cells = {}}};
  for (const ErrorSummary& each : result.summaries) {
    const std::vector<std::string> cells = {each.split,        each.of,           std::to_string(each.runs),
                                            size(each.mean),   size(each.median), size(each.largest),
                                            percent(each.bias)};
    for (std::size_t i = 0; i < cells.size(); ++i)
      columns[i].cells.push_back(cells[i]);
  }
  return text_table(columns, width);
}

std::string ranking_text(const MeasuredResult& result) {
  const auto near = std::count_if(result.ranking.begin(), result.ranking.end(),
                                  [](const RankedGroup& group) { return group.excess <= kNear; });
  std::string text = fmt::format(
      "ranking: in {} of {} groups of one model, batch and number of GPUs the layout predicted fastest is measured\n"
      "within {:.0f} % of the group's fastest\n",
      near, result.ranking.size(), 100 * kNear);
  for (const RankedGroup& group : result.ranking)
    if (group.excess > kNear)
      text += fmt::format("  missed: {} of {} runs, {} was {} slower than {}\n", line_of(group.place), group.runs,
                          line_of(group.place), size(group.excess), line_of(group.fastest));
  return text;
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

}  // namespace

std::string measured_text(const MeasuredResult& result, const TableOptions& options) {
  std::string text = wrapped("", result.title, options.width) + wrapped("source ", result.source, options.width);
  if (!result.note.empty()) text += wrapped("note   ", result.note, options.width);
  text += "\n" + runs_table(result, std::max(options.width, 140)) + "\n" + constants_text(result, options.width) + "\n";
  text += "errors of the predictions, magnitudes; bias with signs\n" + summary_table(result, options.width);
  if (!result.ranking.empty()) text += "\n" + ranking_text(result);
  return text;
}

std::string measured_csv(const MeasuredResult& result) {
  std::string text = "file,line,group,devices";
  for (const RunColumn& column : result.columns)
    text += "," + csv_field(column.key);
  text += ",measured_s,predicted_s,error,fitted,fits\n";
  for (const PredictedRun& each : result.runs) {
    text += fmt::format("{},{},{},{}", csv_field(each.run.place.file), each.run.place.line, csv_field(each.run.group),
                        each.run.devices);
    for (const std::int64_t value : each.run.values)
      text += fmt::format(",{}", value);
    text += fmt::format(",{},{},{},{},{}\n", each.run.seconds, each.seconds, each.error(), each.run.fitted, each.fits);
  }
  return text;
}

}  // namespace pipewright
