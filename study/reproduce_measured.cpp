#include "study/reproduce_measured.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "core/ending.hpp"
#include "io/console.hpp"
#include "io/read/read_runs.hpp"
#include "planner/anchor.hpp"
#include "planner/measured.hpp"
#include "planner/what_if/speed_range.hpp"
#include "runtime/signals.hpp"

namespace pipewright::study {
namespace {

std::vector<std::pair<FittedConstant, std::string>> used(const MeasuredTable& table, const ScenarioFile& file) {
  std::vector<std::pair<FittedConstant, std::string>> constants;
  for (const FittedConstant& constant : table.constants)
    constants.emplace_back(constant, file.written(constant.key).value_or("?"));
  return constants;
}

// The search, and how near it came: the lines that it was made on are all that it reads.
std::string fit_text(const MeasuredTable& table, std::vector<MeasuredRun> runs, const ScenarioOf& scenario) {
  std::erase_if(runs, [](const MeasuredRun& run) {
    return !run.fitted || run.state != RunState::Compared || !run.figures.front();
  });
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
  const RunFigure& figure = table.figures.front();  // in the units of its column
  for (const PredictedRun& each : predict(table, runs, with))
    text += fmt::format("  {}:{}: measured {} {:.4g}, with them {:.4g}, {:+.1f} %\n", each.run.place.file,
                        each.run.place.line, figure.name, *each.run.figures.front() / figure.unit_size,
                        *each.figures.front() / figure.unit_size, 100 * *each.off(0));
  return text;
}

MeasuredResult compared(const std::string& name, const MeasuredTable& table, std::vector<PredictedRun> runs) {
  MeasuredResult result{.name = name,
                        .title = table.title,
                        .source = table.source,
                        .note = table.note,
                        .columns = table.columns,
                        .figures = table.figures,
                        .runs = std::move(runs),
                        .counts = {},
                        .summaries = {},
                        .ranking = {},
                        .scaling = {},
                        .constants = {}};
  result.counts = row_counts(table, result.runs);
  result.summaries = error_summaries(table, result.runs);
  result.ranking = ranking(table, result.runs);
  result.scaling = weak_scaling(table, result.runs);
  return result;
}

// A set and, where constants were fitted, the same rows with the constants as they were expected.
std::vector<MeasuredResult> results_of(const MeasuredSet& set, const std::string& folder) {
  const MeasuredTable& table = *set.file->measured();
  const std::vector<MeasuredRun> runs = read_runs(table, folder);
  const ScenarioOf scenario = [&](const std::vector<std::string>& more) {
    return anchored(set.file->scenario(-1, more));
  };
  std::vector<MeasuredResult> results = {compared(set.name, table, predict(table, runs, scenario))};
  results.front().constants = used(table, *set.file);
  if (table.constants.empty()) return results;
  results.push_back(
      compared(set.name + ", nothing fitted", table, predict(table, runs, scenario, expected_constants(table))));
  results.back().counts.fitted = 0;
  return results;
}

bool is_there(const MeasuredTable& table, const std::string& folder) {
  return std::all_of(table.files.begin(), table.files.end(), [&](const RunFile& file) {
    std::error_code ignored;
    return std::filesystem::exists(file_of_runs(file, folder), ignored);
  });
}

}  // namespace

// How kLeftOut is calibrated: between which figures 85 to 95 % of every fifth line lie inside, of sets that are less than
// 30 % off in the mean. Others do not say what is left out, but that they are not understood.
std::string left_out_text(const ComparedSets& sets) {
  const auto& [results, tables, absent] = sets;
  constexpr double kUnderstood = 0.3;
  std::vector<double> all;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const bool again = i > 0 && tables[i] == tables[i - 1];  // the same lines with nothing fitted
    if (again || results[i].summaries.empty() || results[i].summaries.front().mean > kUnderstood) continue;
    const std::vector<double> needed = left_out_needed(*tables[i], results[i].runs);
    all.insert(all.end(), needed.begin(), needed.end());
  }
  if (all.empty()) return "";
  std::sort(all.begin(), all.end());
  const auto with = [&](double inside) {
    return 100 * all[static_cast<std::size_t>(std::ceil(inside * static_cast<double>(all.size()))) - 1];
  };
  const auto inside = std::count_if(all.begin(), all.end(), [](double each) { return each <= kLeftOut; });
  return fmt::format(
      "\nwhat the model leaves out: with the {:.4g} % that the intervals take, {} of {} lines (5, 10, 15, ...) "
      "lie inside their 90 % interval; 85 % with {:.1f} %, 90 % with {:.1f} %, 95 % with {:.1f} %\n",
      100 * kLeftOut, inside, all.size(), with(0.85), with(0.90), with(0.95));
}

std::string fit_text(const MeasuredSet& set, const std::string& folder) {
  const MeasuredTable& table = *set.file->measured();
  return fit_text(table, read_runs(table, folder),
                  [&](const std::vector<std::string>& more) { return anchored(set.file->scenario(-1, more)); });
}

ComparedSets compared_sets(const std::vector<MeasuredSet>& sets, const std::string& folder) {
  ComparedSets compared;
  const Interruption interruption;
  ProgressLine line;
  for (const MeasuredSet& set : sets) {
    const MeasuredTable& table = *set.file->measured();
    if (sets.size() > 1 && !is_there(table, folder)) {
      compared.absent.push_back(set.name);
      continue;
    }
    end_if_asked("nothing is printed yet");
    line.say(fmt::format("reproduce: {}", set.name));
    for (MeasuredResult& each : results_of(set, folder))
      compared.results.push_back(std::move(each)), compared.tables.push_back(&table);
  }
  return compared;
}

}  // namespace pipewright::study
