#include "cli/validate_import.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "cli/config_path.hpp"
#include "cli/option_values.hpp"
#include "cli/outputs.hpp"
#include "core/check.hpp"
#include "io/read/read_scenario.hpp"
#include "io/writers/writers.hpp"
#include "planner/answer.hpp"
#include "study/imported.hpp"

namespace pipewright::cli {
namespace {

// What an imported run takes; everything else is for runs on this machine.
constexpr std::array<std::string_view, 9> kTaken = {"--log",    "--trace", "--set",   "--tolerance", "--output",
                                                    "--warmup", "--json",  "--color", "--help"};

// A comparison as a file, by its ending.
struct ImportedWriter {
  std::string_view ending, what;
  std::string (*write)(const ImportedComparison&, const std::string& command);
};
template <std::string (*write)(const ImportedComparison&)>
std::string plain(const ImportedComparison& c, const std::string&) {
  return write(c);
}
constexpr std::array kWriters = {
    ImportedWriter{".txt", "the tables as text", plain<imported_text>},
    ImportedWriter{".json", "schema pipewright.imported/1", plain<imported_json>},
    ImportedWriter{".html", "predicted next to measured in one page, for any browser", imported_html},
};

void refuse_options_of_runs(const Arguments& arguments) {
  for (const auto& [name, values] : arguments.options)
    if (std::ranges::find(kTaken, name) == kTaken.end())
      throw InputError(name +
                       ": is for runs on this machine and cannot be combined with --log or --trace; leave it out" +
                       (name == "--profile" ? ", and price with --set 'cost={profile: FILE}'" : ""));
}

// A scenario or plan, simulated; or a result, read back.
struct Asked {
  std::optional<Scenario> scenario;
  std::optional<Answer> answer;
  Prediction predicted;
};

void ask(const Arguments& arguments, Asked& asked) {
  const std::string& path = arguments.positional.front();
  if (path.ends_with(".json")) {
    if (arguments.has("--set"))
      throw InputError(Place{}, "--set",
                       path + " is a result, in which nothing can be changed; name its scenario instead");
    if (arguments.has("--trace"))
      throw InputError(Place{}, "--trace",
                       path + " is a result, which has no times of single actions; name its scenario");
    asked.predicted = read_prediction(path);
    return;
  }
  asked.scenario = read_scenario(path, {.set = arguments.all("--set"), .config_path = config_path()});
  auto result = answer(*asked.scenario, {.ignore_memory = true});
  if (const auto* none = std::get_if<Infeasible>(&result)) throw InputError(asked.scenario->file + ": " + none->reason);
  asked.answer = std::get<Answer>(std::move(result));
  asked.predicted = prediction_of(*asked.answer);
  if (!asked.answer->report.fits)
    note("warning: by the prediction the plan does not fit: " + asked.answer->report.shortfall.reason);
}

std::vector<std::string> files_read(const Arguments& arguments) {
  std::vector<std::string> files = arguments.positional;
  for (const char* option : {"--log", "--trace"})
    for (const std::string& path : arguments.all(option))
      files.push_back(path);
  return files;
}

}  // namespace

bool asks_for_import(const Arguments& arguments) {
  return arguments.has("--log") || arguments.has("--trace");
}

int validate_import(const Arguments& arguments, std::optional<double> tolerance) {
  refuse_options_of_runs(arguments);
  if (arguments.positional.size() > 1)
    throw InputError(fmt::format("validate: {} scenarios with --log or --trace; name the one that was run",
                                 arguments.positional.size()));
  const auto warmup = static_cast<int>(option_number(arguments, "--warmup", {0, 1'000'000'000}, "3").value_or(3));
  if (arguments.all("--log").size() > 1)
    throw InputError(Place{}, "--log",
                     "given twice; a log holds all steps of a run, so name one (traces may be several)");
  const std::vector<std::string> outputs = arguments.all("--output");
  const std::vector<const ImportedWriter*> files =
      checked_formats(outputs, files_read(arguments), std::span<const ImportedWriter>(kWriters));
  Asked asked;
  ask(arguments, asked);
  const Prediction& predicted = asked.predicted;

  std::optional<LogComparison> log;
  std::optional<TraceComparison> trace;
  if (arguments.has("--log")) log = compare_log(predicted, imported_log_of(arguments.last("--log", "")), warmup);
  if (log && !log->other_layout.empty()) note("warning: " + log->other_layout + "; are they of one run?");
  if (arguments.has("--trace")) trace = compare_traces(*predicted.answer, imported_traces_of(arguments.all("--trace")));
  const ImportedComparison c = judged(predicted, std::move(log), std::move(trace), tolerance);
  print(arguments.has("--json") ? imported_json(c) : imported_text(c));
  for (std::size_t i = 0; i < files.size(); ++i)
    write_output(outputs[i], files[i]->write(c, command_line("validate", arguments)), files[i]->what);
  return c.within ? kDone : kNo;
}

}  // namespace pipewright::cli
