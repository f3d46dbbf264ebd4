#include "planner/measured.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "planner/find_plan.hpp"
#include "planner/price.hpp"

namespace pipewright {
namespace {

bool of_layout(const std::string& key) {
  return key.starts_with("plan.") || key == "training.micro_batch_size";
}

PredictedRun predicted(const MeasuredTable& table, const MeasuredRun& run, const ScenarioOf& scenario_of,
                       const std::vector<std::string>& more) {
  std::vector<std::string> set = more;
  for (std::size_t i = 0; i < table.columns.size(); ++i)
    set.push_back(fmt::format("{}={}", table.columns[i].key, run.values[i]));
  try {
    const Scenario scenario = scenario_of(set);
    const CostModel cost(scenario);
    const Plan plan = find_plan(scenario, cost);
    if (std::int64_t{plan.workers()} * plan.tensor_parallel != run.devices)
      throw InputError(fmt::format("{}: {}, but the layout takes {}", table.devices, run.devices,
                                   std::int64_t{plan.workers()} * plan.tensor_parallel));
    const Answer answer = price(plan, cost, Engine::Auto);
    return {run, seconds(answer.report.step_time), answer.report.fits};
  } catch (const InputError& error) {
    throw InputError(run.place, std::string("makes no scenario: ") + error.what());
  }
}

ErrorSummary summary(std::string split, std::string of, const std::vector<double>& errors) {
  ErrorSummary summary{.split = std::move(split), .of = std::move(of), .runs = static_cast<int>(errors.size())};
  std::vector<double> sizes;
  for (const double error : errors)
    sizes.push_back(std::abs(error));
  std::sort(sizes.begin(), sizes.end());
  const std::size_t n = sizes.size();
  if (n == 0) return summary;
  summary.mean = std::accumulate(sizes.begin(), sizes.end(), 0.0) / static_cast<double>(n);
  summary.bias = std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(n);
  summary.median = n % 2 == 1 ? sizes[n / 2] : (sizes[n / 2 - 1] + sizes[n / 2]) / 2;
  summary.largest = sizes.back();
  return summary;
}

class Search {
 public:
  Search(const MeasuredTable& table, const std::vector<MeasuredRun>& runs, const ScenarioOf& scenario)
      : table_(table), scenario_(scenario) {
    for (const MeasuredRun& run : runs)
      if (run.fitted) runs_.push_back(run);
    for (const FittedConstant& constant : table.constants)
      values_.push_back(constant.expected);
  }

  Fit found() {
    best_ = loss(values_);
    double step = 1.6;
    while (step > 1.002) {
      bool moved = false;
      for (std::size_t i = 0; i < values_.size(); ++i)
        moved |= along(i, step) || along(i, 1 / step);
      if (!moved) step = std::sqrt(step);
    }
    Fit fit{.values = {}, .loss = best_, .tried = tried_};
    for (std::size_t i = 0; i < values_.size(); ++i)
      fit.values.push_back(text(i, values_[i]));
    return fit;
  }

 private:
  std::string text(std::size_t i, double value) const {
    const std::string& unit = table_.constants[i].unit;
    return fmt::format("{:.4g}{}{}", value, unit.empty() ? "" : " ", unit);
  }

  double loss(const std::vector<double>& values) {
    ++tried_;
    std::vector<std::string> set;
    for (std::size_t i = 0; i < values.size(); ++i)
      set.push_back(table_.constants[i].key + "=" + text(i, values[i]));
    double sum = 0, runs = 0;
    for (const MeasuredRun& run : runs_)
      runs += std::pow(std::log(predicted(table_, run, scenario_, set).seconds / run.seconds), 2);
    sum = runs / std::pow(table_.noise, 2);
    for (std::size_t i = 0; i < values.size(); ++i)
      sum += std::pow(std::log(values[i] / table_.constants[i].expected) / std::log(table_.constants[i].factor), 2);
    return sum;
  }

  // Goes on in one direction while that helps.
  bool along(std::size_t i, double factor) {
    bool moved = false;
    for (;;) {
      std::vector<double> next = values_;
      next[i] = values_[i] * factor;
      if (table_.constants[i].most > 0) next[i] = std::min(next[i], table_.constants[i].most);
      if (next[i] == values_[i]) return moved;
      const double reached = loss(next);
      if (!(reached < best_ * (1 - 1e-6))) return moved;
      best_ = reached, values_ = std::move(next), moved = true;
    }
  }

  const MeasuredTable& table_;
  const ScenarioOf& scenario_;
  std::vector<MeasuredRun> runs_;
  std::vector<double> values_;
  double best_ = 0;
  int tried_ = 0;
};

}  // namespace

std::vector<PredictedRun> predict(const MeasuredTable& table, const std::vector<MeasuredRun>& runs,
                                  const ScenarioOf& scenario) {
  std::vector<PredictedRun> result;
  for (const MeasuredRun& run : runs)
    result.push_back(predicted(table, run, scenario, {}));
  return result;
}

std::vector<ErrorSummary> error_summaries(const MeasuredTable& table, const std::vector<PredictedRun>& runs) {
  std::vector<double> all;
  std::map<std::string, std::vector<double>> by_group;
  std::vector<std::map<std::int64_t, std::vector<double>>> by_column(table.columns.size());
  for (const PredictedRun& each : runs) {
    if (each.run.fitted) continue;
    all.push_back(each.error());
    by_group[each.run.group].push_back(each.error());
    for (std::size_t i = 0; i < table.columns.size(); ++i)
      by_column[i][each.run.values[i]].push_back(each.error());
  }
  std::vector<ErrorSummary> summaries = {summary("", "all", all)};
  for (const RunFile& group : table.files)
    summaries.push_back(summary("group", group.name, by_group[group.name]));
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (!of_layout(table.columns[i].key)) continue;
    for (const auto& [value, errors] : by_column[i])
      summaries.push_back(summary(table.columns[i].head, std::to_string(value), errors));
  }
  return summaries;
}

std::vector<RankedGroup> ranking(const MeasuredTable& table, const std::vector<PredictedRun>& runs) {
  std::map<std::vector<std::int64_t>, std::vector<const PredictedRun*>> groups;
  std::vector<std::vector<std::int64_t>> order;
  for (const PredictedRun& each : runs) {
    if (each.run.fitted) continue;
    std::vector<std::int64_t> key = {each.run.devices};
    for (std::size_t i = 0; i < table.columns.size(); ++i)
      if (!of_layout(table.columns[i].key)) key.push_back(each.run.values[i]);
    auto& group = groups[key];
    if (group.empty()) order.push_back(key);
    group.push_back(&each);
  }
  std::vector<RankedGroup> result;
  for (const auto& key : order) {
    const auto& group = groups[key];
    if (group.size() < 2) continue;
    const auto by = [](double (*time)(const PredictedRun&)) {
      return [time](const PredictedRun* a, const PredictedRun* b) { return time(*a) < time(*b); };
    };
    const PredictedRun& first =
        **std::min_element(group.begin(), group.end(), by([](const PredictedRun& run) { return run.seconds; }));
    const PredictedRun& fastest =
        **std::min_element(group.begin(), group.end(), by([](const PredictedRun& run) { return run.run.seconds; }));
    result.push_back({first.run.place, fastest.run.place, static_cast<int>(group.size()),
                      first.run.seconds / fastest.run.seconds - 1});
  }
  return result;
}

Fit fit(const MeasuredTable& table, const std::vector<MeasuredRun>& runs, const ScenarioOf& scenario) {
  if (table.constants.empty()) throw InputError(table.place, "measured.constants: nothing to fit");
  if (std::none_of(runs.begin(), runs.end(), [](const MeasuredRun& run) { return run.fitted; }))
    throw InputError(table.place, "measured.fit_every: no line to fit on; use a smaller number");
  return Search(table, runs, scenario).found();
}

}  // namespace pipewright
