#include "cli/validate_import.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "cli/config_path.hpp"
#include "cli/imported.hpp"
#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/format_quantity.hpp"
#include "io/read_scenario.hpp"
#include "io/writers/writers.hpp"
#include "planner/answer.hpp"

namespace pipewright {
namespace {

// What an imported run takes; everything else is for runs on this machine.
constexpr std::array<std::string_view, 8> kTaken = {"--log",    "--trace", "--set",   "--tolerance",
                                                    "--warmup", "--json",  "--color", "--help"};

void refuse_options_of_runs(const Arguments& arguments) {
  for (const auto& [name, values] : arguments.options)
    if (std::find(kTaken.begin(), kTaken.end(), name) == kTaken.end())
      throw InputError(name + ": is for runs on this machine, not beside --log or --trace; leave it out" +
                       (name == "--profile" ? ", and price with --set 'cost={profile: FILE}'" : "") +
                       (name == "--output" ? ", and write the comparison with --json > FILE" : ""));
}

int warmup_of(const Arguments& arguments) {
  const std::string text = arguments.last("--warmup", "3");
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0 || value > 1'000'000'000)
    throw InputError("--warmup: \"" + text + "\" is no number of steps; write e.g. --warmup 3");
  return value;
}

struct Judged {
  bool within = true;
  std::string text;
};

Judged judged(const std::optional<LogComparison>& log, const std::optional<TraceComparison>& trace,
              const Answer& answer, double tolerance) {
  Judged verdict;
  const auto judge = [&](const char* what, double error) {
    const bool within = std::abs(error) <= tolerance;
    verdict.within &= within;
    verdict.text += fmt::format("{}{} {} of the measured {}", verdict.text.empty() ? "" : "; ",
                                within ? "within" : "more than", percent(tolerance), what);
  };
  if (log) judge("step", error_of(answer.report.step_time, log->median));
  if (trace)
    judge(trace->starts ? "span of actions" : "actions", error_of(trace->predicted_step(), trace->measured_step()));
  return verdict;
}

}  // namespace

bool asks_for_import(const Arguments& arguments) {
  return arguments.has("--log") || arguments.has("--trace");
}

int validate_import(const Arguments& arguments, double tolerance) {
  refuse_options_of_runs(arguments);
  if (arguments.positional.size() > 1)
    throw InputError(fmt::format("validate: {} scenarios beside --log or --trace; name the one that was run",
                                 arguments.positional.size()));
  const int warmup = warmup_of(arguments);
  if (arguments.all("--log").size() > 1)
    throw InputError("--log: given twice; a log holds all steps of a run, so name one (traces may be several)");
  const Scenario scenario =
      read_scenario(arguments.positional.front(), {.set = arguments.all("--set"), .config_path = config_path()});
  const auto result = answer(scenario, {.ignore_memory = true});
  if (const auto* none = std::get_if<Infeasible>(&result)) throw InputError(scenario.file + ": " + none->reason);
  const Answer& predicted = std::get<Answer>(result);
  if (!predicted.report.fits)
    note("warning: by the prediction the plan does not fit: " + predicted.report.shortfall.reason);

  std::optional<LogComparison> log;
  std::optional<TraceComparison> trace;
  if (arguments.has("--log")) log = compare_log(predicted, read_training_log(arguments.last("--log", "")), warmup);
  if (arguments.has("--trace")) {
    std::vector<ActionTrace> traces;
    for (const std::string& path : arguments.all("--trace"))
      traces.push_back(read_action_trace(path));
    trace = compare_traces(predicted, traces);
  }
  const Judged verdict = judged(log, trace, predicted, tolerance);
  if (arguments.has("--json")) {
    JsonText json;
    json.open('{').field("schema", "pipewright.imported/1").field("scenario", scenario.name);
    json.field("verdict", verdict.within ? "within" : "outside").field("tolerance", tolerance).key("log");
    log ? write_log(json, predicted, *log) : (void)json.null();
    json.key("trace");
    trace ? write_trace(json, *trace) : (void)json.null();
    json.close();
    print(std::move(json).text());
  } else {
    print(scenario.name + ": predicted, beside a run that was imported\n" + (log ? log_table(predicted, *log) : "") +
          (trace ? trace_table(*trace) : "") + "\n  verdict: " + verdict.text + "\n");
  }
  return verdict.within ? kDone : kNo;
}

}  // namespace pipewright
