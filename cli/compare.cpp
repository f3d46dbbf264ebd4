// `compare`: two scenarios or results, what differs, timelines on one scale.
#include "io/writers/compare.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/campaign_options.hpp"
#include "cli/commands.hpp"
#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "cli/validate_import.hpp"
#include "core/check.hpp"
#include "io/import/run_file.hpp"
#include "io/text/format_quantity.hpp"
#include "io/text/utf8.hpp"
#include "io/writers/html.hpp"
#include "runtime/measurement.hpp"
#include "study/compared_sides.hpp"

namespace pipewright::cli {
namespace {

// Two measured runs, figure by figure.

constexpr std::size_t kWarmup = 3;  // first steps of a log that do not count, as validate has it
constexpr std::size_t kLongestName = 60;

enum class FigureKind { Time, Bytes, Rate };

// A figure of both runs: of those that only one of them has, nothing is said.
struct FigurePair {
  std::string what;
  FigureKind kind;
  double a, b;
};

using Figures = std::map<std::string, std::pair<FigureKind, double>>;  // by name, which sorts them as they are shown

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void add_median(Figures& figures, const std::string& what, FigureKind kind, const std::vector<double>& values) {
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
  add_median(figures, "1 step (median)", FigureKind::Time, times);
  add_median(figures, "2 samples/s", FigureKind::Rate, samples);
  add_median(figures, "3 tokens/s per device", FigureKind::Rate, tokens);
  add_median(figures, "4 TFLOP/s per device", FigureKind::Rate, rates);
  if (log.max_allocated)
    figures["5 memory allocated, most"] = {FigureKind::Bytes, static_cast<double>(log.max_allocated->value)};
  if (log.max_reserved)
    figures["6 memory reserved, most"] = {FigureKind::Bytes, static_cast<double>(log.max_reserved->value)};
}

void trace_figures(const ActionTrace& trace, Figures& figures) {
  std::map<std::string, std::vector<double>> kinds;
  for (const TracedAction& action : trace.actions)
    kinds[fmt::format("7 stage {:3} {}", action.stage, action.kind)].push_back(seconds(action.duration));
  for (const auto& [kind, durations] : kinds)
    add_median(figures, kind, FigureKind::Time, durations);
}

std::vector<FigurePair> common(const ImportedRun& a, const ImportedRun& b) {
  Figures of_a, of_b;
  for (const auto& [run, figures] : {std::pair(&a, &of_a), std::pair(&b, &of_b)}) {
    if (run->log) log_figures(*run->log, *figures);
    if (run->trace) trace_figures(*run->trace, *figures);
  }
  std::vector<FigurePair> rows;
  for (const auto& [what, figure] : of_a)
    if (const auto other = of_b.find(what); other != of_b.end())
      rows.push_back({what.substr(2), figure.first, figure.second, other->second.second});
  return rows;
}

std::string shown(FigureKind kind, double value) {
  switch (kind) {
    case FigureKind::Time: return short_time(Time{std::llround(std::min(value, 4e9) * 1e9)}, 4);
    case FigureKind::Bytes: return short_bytes(Bytes{std::llround(std::min(value, 4e18))});
    default: return significant(value, 4);
  }
}

std::string ratio(const FigurePair& row) {
  return row.a > 0 ? signed_percent(row.b / row.a - 1) : "";
}

std::string table(const std::vector<FigurePair>& rows) {
  std::string text = fmt::format("  {:<{}} {:>12} {:>12} {:>9}\n", "", kLongestName, "A", "B", "B to A");
  for (const FigurePair& row : rows)
    text += fmt::format("  {:<{}} {:>12} {:>12} {:>9}\n", row.what.substr(0, kLongestName), kLongestName,
                        shown(row.kind, row.a), shown(row.kind, row.b), ratio(row));
  return text;
}

// Of two run files. Throws InputError where they have nothing in common.
std::string two_runs_text(const std::string& first, const std::string& second) {
  const ImportedRun a = read_run_file(first), b = read_run_file(second);
  const std::vector<FigurePair> figures = common(a, b);
  if (figures.empty())
    throw InputError("compare: " + first + " and " + second +
                     " have no figure in common; compare two logs or two traces");
  return fmt::format("two measured runs\n  A  {} ({})\n  B  {} ({})\n\n{}", one_line(first), one_line(a.source.format),
                     one_line(second), one_line(b.source.format), table(figures));
}

constexpr std::array<Option, 6> kOwnCompareOptions = {{
    {"--set", "", "KEY=VALUE", "change one value of both scenarios (repeatable)"},
    {"--set-a", "", "KEY=VALUE", "change one value of A, after --set (repeatable)"},
    {"--set-b", "", "KEY=VALUE", "change one value of B, after --set (repeatable)"},
    {"--output", "-o", "FILE", "also write FILE: .html .svg .md .json (repeatable)"},
    {"--json", "", "", "one JSON document on standard output instead of the report"},
    {"--width", "", "N", "columns of the report (default: the terminal's, else 100)"},
}};
constexpr auto kCompareOptions = with_campaign(kOwnCompareOptions);

using CompareWriter = std::string (*)(const ComparedSide&, const ComparedSide&, std::string_view command);
struct CompareFormat {
  std::string_view ending;
  CompareWriter write;
};
constexpr std::array<CompareFormat, 4> kCompareEndings = {{
    {".html", compare_html},
    {".json", [](const ComparedSide& a, const ComparedSide& b, std::string_view) { return compare_json(a, b); }},
    {".md", [](const ComparedSide& a, const ComparedSide& b, std::string_view) { return compare_markdown(a, b); }},
    {".svg",
     [](const ComparedSide& a, const ComparedSide& b, std::string_view) {
       for (const ComparedSide* side : {&a, &b})
         if (!side->answer)
           throw InputError(
               Place{}, "--output",
               side->name + " is a result document, which has no timeline to draw; name its scenario instead");
       return svg_timelines(*a.answer, *b.answer);
     }},
}};

int two_runs(const Arguments& arguments) {
  refuse_options(arguments, {"--set", "--set-a", "--set-b", "--output", "--json"},
                 ": is for scenarios, not for two measured runs; leave it out");
  print(two_runs_text(arguments.positional[0], arguments.positional[1]));
  return kDone;
}

// At least one of the two arguments is a run file: two runs, or one next to a prediction.
int compare_runs(const Arguments& arguments) {
  if (const std::string option = campaign_option(arguments); !option.empty())
    throw InputError(option + ": the whole training is reported for scenarios, not for measured runs; leave it out");
  const std::vector<std::string>& paths = arguments.positional;
  const bool first = is_run_file(paths[0]);
  if (first && is_run_file(paths[1])) return two_runs(arguments);
  const std::string run = paths[first ? 0 : 1], scenario = paths[first ? 1 : 0];
  if (arguments.has("--output"))
    throw InputError(Place{}, "--output",
                     "a measured run has no timeline to draw next to a prediction; write --json > FILE");
  const ImportedRun measured = read_run_file(run);
  // As validate has it, with nothing judged.
  Arguments asked;
  asked.positional = {scenario};
  if (measured.log) asked.options["--log"] = {run};
  if (measured.trace && !scenario.ends_with(".json")) asked.options["--trace"] = {run};
  std::vector<std::string> set = arguments.all("--set");
  for (std::string& change : arguments.all(first ? "--set-b" : "--set-a"))
    set.push_back(std::move(change));
  if (!set.empty()) asked.options["--set"] = set;
  if (arguments.has("--json")) asked.options["--json"] = {""};
  return validate_import(asked, std::nullopt);
}

int compare_command(const Arguments& arguments) {
  const std::vector<std::string>& paths = arguments.positional;
  if (paths[0] == "-" && paths[1] == "-")
    throw InputError("compare: standard input can be one side only; name a file for the other");
  if (is_run_file(paths[0]) || is_run_file(paths[1])) return compare_runs(arguments);
  const TableOptions table{output_width(arguments), use_colour(arguments)};
  const std::vector<std::string> outputs = arguments.all("--output"), common = settings(arguments);
  const auto writers = checked_formats<CompareFormat>(outputs, paths, kCompareEndings);
  const ReadOptions how{.set = common, .config_path = config_path()};
  const LoadedSide a = loaded_side(paths[0], how, arguments.all("--set-a")),
                   b = loaded_side(paths[1], how, arguments.all("--set-b"));
  std::vector<std::string> files;
  for (const CompareFormat* each : writers)
    files.push_back(each->write(a.side, b.side, command_line("compare", arguments)));
  print(arguments.has("--json") ? compare_json(a.side, b.side) : compare_text(a.side, b.side, table));
  for (std::size_t i = 0; i < outputs.size(); ++i)
    write_output(outputs[i], files[i], "comparison");
  return kDone;
}

}  // namespace

constinit const Command kCompare{
    .name = "compare",
    .arguments = "A B",
    .summary = "two scenarios or results: what differs, timelines on one scale",
    .details =
        "A and B are scenarios, which are simulated even if they do not fit, results of simulate -o FILE.json, or\n"
        "measured runs that `import` wrote: two of them, or one next to a prediction.\n"
        "  pipewright compare scenarios/what_if/hops-1f1b.yaml scenarios/what_if/hops-gpipe.yaml -o both.svg\n"
        "  pipewright compare scenarios/quickstart.yaml scenarios/quickstart.yaml --set-b plan.schedule=gpipe\n",
    .options = kCompareOptions,
    .least = 2,
    .most = 2,
    .run = compare_command,
};

}  // namespace pipewright::cli
