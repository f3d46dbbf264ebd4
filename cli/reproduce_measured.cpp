#include "cli/reproduce_measured.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/terminal.hpp"
#include "core/check.hpp"
#include "io/read_runs.hpp"
#include "io/writers/measured.hpp"
#include "planner/measured.hpp"

namespace pipewright {
namespace {

std::vector<std::pair<FittedConstant, std::string>> used(const MeasuredTable& table, const ScenarioFile& file) {
  std::vector<std::pair<FittedConstant, std::string>> constants;
  for (const FittedConstant& constant : table.constants)
    constants.emplace_back(constant, file.written(constant.key).value_or("?"));
  return constants;
}

// The search, and how near it came: the lines that it was made on are all that it reads.
void print_fit(const MeasuredTable& table, std::vector<MeasuredRun> runs, const ScenarioOf& scenario, bool json) {
  std::erase_if(runs, [](const MeasuredRun& run) { return !run.fitted; });
  const Fit found = fit(table, runs, scenario);
  std::vector<std::string> set;
  std::string text = fmt::format("{} constants on {} lines, {} combinations tried, sum of squares {:.2f}\n",
                                 table.constants.size(), runs.size(), found.tried, found.loss);
  for (std::size_t i = 0; i < found.values.size(); ++i) {
    set.push_back(table.constants[i].key + "=" + found.values[i]);
    text += fmt::format("  --set \"{}\"\n", set.back());
  }
  const ScenarioOf with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = set;
    all.insert(all.end(), more.begin(), more.end());
    return scenario(all);
  };
  const std::vector<PredictedRun> predicted = predict(table, runs, with);
  if (json) return print(fit_json({table.title, set, found.tried, found.loss, predicted}));
  print(text);
  for (const PredictedRun& each : predicted)
    print(fmt::format("  {}:{}: measured {:.1f} ms, with them {:.1f} ms, {:+.1f} %\n", each.run.place.file,
                      each.run.place.line, 1e3 * each.run.seconds, 1e3 * each.seconds, 100 * each.error()));
}

}  // namespace

int reproduce_measured(const ScenarioFile& file, const Arguments& arguments) {
  const MeasuredTable& table = *file.measured();
  if (!arguments.has("--data"))
    throw InputError(
        fmt::format("reproduce: \"{}\" compares with runs that do not ship with pipewright ({}); name their "
                    "folder with --data DIR",
                    table.title, table.source));
  const std::vector<MeasuredRun> runs = read_runs(table, arguments.last("--data", ""));
  const ScenarioOf scenario = [&](const std::vector<std::string>& set) { return file.scenario(-1, set); };
  if (arguments.has("--fit")) return print_fit(table, runs, scenario, arguments.has("--json")), kDone;
  MeasuredResult result{table.title, table.source, table.note, table.columns, predict(table, runs, scenario),
                        {},          {},           {}};
  result.summaries = error_summaries(table, result.runs);
  result.ranking = ranking(table, result.runs);
  result.constants = used(table, file);
  print(arguments.has("--json")  ? measured_json(result)
        : arguments.has("--csv") ? measured_csv(result)
                                 : measured_text(result, {output_width(arguments), use_colour(arguments)}));
  return kDone;
}

}  // namespace pipewright
