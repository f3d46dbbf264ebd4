#include "planner/measured.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "planner/figures.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "planner/what_if/speed_range.hpp"

namespace pipewright::planner {
namespace {

constexpr int kCalibratedOn = 5;  // every such line tells what the model leaves out

bool of_layout(const std::string& key) {
  return key.starts_with("plan.") || key == "training.micro_batch_size";
}

// "file:3:5: plan.stages: ..." without the place: rows that fail alike are counted together.
std::string reason(const std::string& what) {
  std::string line = what.substr(0, what.find('\n'));
  const std::size_t colon = line.find(": ");
  const bool placed = colon != std::string::npos && line.find(' ') == colon + 1 && line.find(':') != colon;
  return placed ? line.substr(colon + 2) : line;
}

PredictedRun predicted(const MeasuredTable& table, const MeasuredRun& run, const ScenarioOf& scenario_of,
                       const std::vector<std::string>& more, bool ranges) {
  PredictedRun result{.run = run, .figures = {}};
  if (run.state != RunState::Compared && run.state != RunState::Failed) return result;
  std::vector<std::string> set = more;
  set.insert(set.end(), run.set.begin(), run.set.end());
  try {
    const CostModel cost(std::make_shared<const Scenario>(scenario_of(set)));
    const Scenario& scenario = cost.scenario();
    const Plan plan = find_plan(scenario, cost);
    if (run.devices > 0 && plan.devices() != run.devices)
      throw InputError(fmt::format("{}: {}, but the layout takes {}", table.devices, run.devices, plan.devices()));
    const Answer answer = price(plan, cost, Engine::Auto);
    result.fits = answer.report.fits;
    if (run.state == RunState::Failed) return result;
    result.from_operators = scenario.cost == CostSourceKind::Roofline;
    for (std::size_t f = 0; f < table.figures.size(); ++f) {
      const FigureSought& sought = table.figures[f].sought;
      const bool there = run.figures[f] || sought.where != Where::Stage || sought.stage < plan.stages;
      result.figures.push_back(there ? std::optional(figure_of(answer, sought)) : std::nullopt);
    }
    if (!ranges) return result;
    const std::optional<SpeedRange> range = speed_range(answer, Engine::Auto, 0).range;
    for (std::size_t f = 0; f < table.figures.size(); ++f) {
      const std::optional<double>& figure = result.figures[f];
      result.ranges.push_back(figure ? range_of(answer, table.figures[f].sought, *figure, range) : std::nullopt);
    }
  } catch (const InputError& error) {
    result.run.state = RunState::Unpriced, result.run.why = reason(error.what());
    result.figures.clear(), result.ranges.clear();
  }
  return result;
}

// The first figure tells the speed; of a rate, more is faster.
bool is_rate(const MeasuredTable& table) {
  return dimension(table.figures.front().sought.figure) != Dimension::Duration;
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// A figure of a run, as far as it is a prediction.
struct Scored {
  double error = 0;
  std::optional<double> half_width;  // of its interval, over the predicted figure
  bool inside = false;
};

Scored scored(const PredictedRun& run, std::size_t figure, double error) {
  Scored result{.error = error};
  if (const auto range = run.range(figure)) {
    const double measured = *run.run.figures[figure];
    result.half_width = (range->high - range->low) / 2 / *run.figures[figure];
    result.inside = range->low <= measured && measured <= range->high;
  }
  return result;
}

ErrorSummary summary(std::string split, std::string of, const std::vector<Scored>& runs) {
  ErrorSummary summary{.split = std::move(split), .of = std::move(of), .runs = static_cast<int>(runs.size())};
  std::vector<double> sizes, widths;
  for (const Scored& each : runs) {
    sizes.push_back(std::abs(each.error));
    summary.bias += each.error / static_cast<double>(runs.size());
    if (each.half_width) widths.push_back(*each.half_width), summary.inside += each.inside;
  }
  if (sizes.empty()) return summary;
  summary.mean = std::accumulate(sizes.begin(), sizes.end(), 0.0) / static_cast<double>(sizes.size());
  summary.median = median_of(sizes);
  summary.largest = *std::max_element(sizes.begin(), sizes.end());
  summary.ranged = static_cast<int>(widths.size());
  if (widths.empty()) return summary;
  summary.inside /= summary.ranged;
  summary.half_width = median_of(std::move(widths));
  return summary;
}

// Errors by something, in the order in which it comes first.
class ErrorsBy {
 public:
  void add(const std::string& of, const Scored& run) {
    if (!errors_.contains(of)) order_.push_back(of);
    errors_[of].push_back(run);
  }
  void into(std::vector<ErrorSummary>& summaries, const std::string& figure, const std::string& split) const {
    for (const std::string& of : order_) {
      summaries.push_back(summary(split, of, errors_.at(of)));
      summaries.back().figure = figure;
    }
  }
  // Numbers by size, texts as they come.
  void sort() {
    std::stable_sort(order_.begin(), order_.end(), [](const std::string& a, const std::string& b) {
      return a.size() != b.size() ? a.size() < b.size() : a < b;
    });
  }
  std::size_t size() const { return order_.size(); }

 private:
  std::vector<std::string> order_;
  std::map<std::string, std::vector<Scored>> errors_;
};

std::string short_key(const std::string& key) {
  return key.substr(key.rfind('.') + 1);
}

}  // namespace

std::vector<PredictedRun> predict(const MeasuredTable& table, const std::vector<MeasuredRun>& runs,
                                  const ScenarioOf& scenario, const std::vector<std::string>& more, bool ranges) {
  std::vector<PredictedRun> result;
  for (const MeasuredRun& run : runs)
    result.push_back(predicted(table, run, scenario, more, ranges));
  return result;
}

RowCounts row_counts(const MeasuredTable& table, const std::vector<PredictedRun>& runs) {
  RowCounts counts;
  for (std::size_t i = 0; i < table.subsets.size(); ++i) {
    SubsetCounts subset{.of = table.subsets[i].text};
    for (const PredictedRun& each : runs) {
      if (!each.run.in_subset[i]) continue;
      const bool ran = each.run.state == RunState::Compared && !each.run.fitted;
      const bool failed = each.run.state == RunState::Failed;
      subset.compared += ran, subset.compared_fit += ran && each.fits;
      subset.failed += failed, subset.failed_fit += failed && each.fits;
    }
    if (subset.failed > 0) counts.subsets.push_back(std::move(subset));
  }
  std::map<std::string, int> left_out, missing, unpriced;
  for (const PredictedRun& each : runs) {
    ++counts.rows;
    switch (each.run.state) {
      case RunState::Compared:
        ++(each.run.fitted ? counts.fitted : counts.compared);
        counts.compared_fit += each.fits && !each.run.fitted;
        break;
      case RunState::Failed: ++counts.failed, counts.failed_fit += each.fits; break;
      case RunState::LeftOut: ++left_out[each.run.why]; break;
      case RunState::Missing: ++missing[each.run.why]; break;
      case RunState::Unpriced: ++unpriced[each.run.why]; break;
    }
  }
  const auto sorted = [](const std::map<std::string, int>& by_reason) {
    std::vector<std::pair<std::string, int>> list(by_reason.begin(), by_reason.end());
    std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    return list;
  };
  counts.left_out = sorted(left_out), counts.missing = sorted(missing), counts.unpriced = sorted(unpriced);
  return counts;
}

std::vector<ErrorSummary> error_summaries(const MeasuredTable& table, const std::vector<PredictedRun>& runs) {
  std::vector<ErrorSummary> summaries;
  for (std::size_t f = 0; f < table.figures.size(); ++f) {
    ErrorsBy all, subset, group;
    std::vector<ErrorsBy> by(table.by.size()), by_column(table.columns.size());
    for (const PredictedRun& each : runs) {
      const auto error = each.error(f);
      if (!error) continue;
      const Scored run = scored(each, f, *error);
      all.add("all", run);
      for (std::size_t i = 0; i < table.subsets.size(); ++i)
        if (each.run.in_subset[i]) subset.add(table.subsets[i].text, run);
      group.add(each.run.group, run);
      for (std::size_t i = 0; i < table.by.size(); ++i)
        by[i].add(each.run.by[i].empty() ? "-" : each.run.by[i], run);
      for (std::size_t i = 0; i < table.columns.size(); ++i)
        by_column[i].add(each.run.values[i].empty() ? "-" : each.run.values[i], run);
    }
    const std::string& name = table.figures[f].name;
    all.into(summaries, name, "");
    subset.into(summaries, name, "subset");
    if (table.files.size() > 1) group.into(summaries, name, "group");
    for (std::size_t i = 0; i < table.by.size(); ++i)
      if (by[i].size() > 1) by[i].sort(), by[i].into(summaries, name, table.by[i]);
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      if (!of_layout(table.columns[i].key) || by_column[i].size() < 2) continue;
      by_column[i].sort();
      by_column[i].into(summaries, name, short_key(table.columns[i].key));
    }
  }
  return summaries;
}

namespace {

bool of_speed(const MeasuredTable& table) {
  const Dimension of = dimension(table.figures.front().sought.figure);
  return of == Dimension::Duration || of == Dimension::Rate;
}

}  // namespace

std::vector<double> left_out_needed(const MeasuredTable& table, const std::vector<PredictedRun>& runs) {
  if (!of_speed(table)) return {};
  std::vector<double> needed;
  for (const PredictedRun& each : runs) {
    const auto error = each.error(0);
    const auto range = each.range(0);
    if (!error || !range || !each.from_operators || each.run.place.line % kCalibratedOn != 0) continue;
    const double off = std::log1p(*error), stated = *each.figures.front(), left_out = std::log1p(kLeftOut);
    const double side = off < 0 ? std::log(range->high / stated) : std::log(stated / range->low);
    needed.push_back(std::expm1(std::sqrt(std::max(0.0, off * off - side * side + left_out * left_out))));
  }
  std::sort(needed.begin(), needed.end());
  return needed;
}

std::vector<RankedGroup> ranking(const MeasuredTable& table, const std::vector<PredictedRun>& runs) {
  if (!of_speed(table)) return {};  // who takes less memory is not the better for it
  const bool rate = is_rate(table);
  const auto slowness = [&](double figure) { return rate ? 1 / figure : figure; };
  std::map<std::vector<std::string>, std::vector<const PredictedRun*>> groups;
  std::vector<std::vector<std::string>> order;
  // Where rows state the number of micro-batches, their size is a part of the batch.
  const bool sets_batch = std::any_of(table.columns.begin(), table.columns.end(),
                                      [](const auto& column) { return column.key == "training.micro_batches"; });
  for (const PredictedRun& each : runs) {
    if (!each.error(0)) continue;
    std::vector<std::string> key = {each.run.group, std::to_string(each.run.devices)};
    for (std::size_t i = 0; i < table.columns.size(); ++i)
      if (!of_layout(table.columns[i].key) || (sets_batch && table.columns[i].key == "training.micro_batch_size"))
        key.push_back(each.run.values[i]);
    for (const std::string& set : each.run.set)
      if (set.starts_with("model.")) key.push_back(set);
    auto& group = groups[key];
    if (group.empty()) order.push_back(key);
    group.push_back(&each);
  }
  std::vector<RankedGroup> result;
  for (const auto& key : order) {
    const auto& group = groups[key];
    if (group.size() < 2) continue;
    const auto first_by = [&](auto figure) {
      return *std::min_element(group.begin(), group.end(), [&](const PredictedRun* a, const PredictedRun* b) {
        return slowness(figure(*a)) < slowness(figure(*b));
      });
    };
    const auto measured = [](const PredictedRun& run) { return *run.run.figures.front(); };
    const PredictedRun& first = *first_by([](const PredictedRun& run) { return *run.figures.front(); });
    const PredictedRun& fastest = *first_by(measured);
    result.push_back({first.run.place, fastest.run.place, static_cast<int>(group.size()),
                      slowness(measured(first)) / slowness(measured(fastest)) - 1});
  }
  return result;
}

std::vector<ScalingSeries> weak_scaling(const MeasuredTable& table, const std::vector<PredictedRun>& runs) {
  if (table.weak_scaling.empty() || !of_speed(table)) return {};
  struct Mean {
    double measured = 0, predicted = 0;
    int runs = 0;
  };
  std::map<std::vector<std::string>, std::map<std::int64_t, Mean>> series;
  std::vector<std::vector<std::string>> order;
  for (const PredictedRun& each : runs) {
    if (!each.error(0) || each.run.series.empty()) continue;
    std::vector<std::string> of = each.run.series;
    of.insert(of.begin(), each.run.group);
    auto& sizes = series[of];
    if (sizes.empty()) order.push_back(of);
    Mean& mean = sizes[each.run.devices];
    mean.measured += *each.run.figures.front(), mean.predicted += *each.figures.front(), ++mean.runs;
  }
  std::vector<ScalingSeries> result;
  for (const auto& of : order) {
    const auto& sizes = series[of];
    if (sizes.size() < 2) continue;
    const auto& [least, first] = *sizes.begin();
    const auto& [most, last] = *sizes.rbegin();
    const auto speed = [&](double before, double after) {
      const double longer = (after / last.runs) / (before / first.runs);
      return is_rate(table) ? longer : 1 / longer;
    };
    std::string name;
    for (auto word = of.begin() + 1; word != of.end() - 1; ++word)
      if (!word->empty()) name += (name.empty() ? "" : " ") + *word;
    result.push_back(
        {std::move(name), least, most, speed(first.measured, last.measured), speed(first.predicted, last.predicted)});
  }
  return result;
}

std::vector<std::string> expected_constants(const MeasuredTable& table) {
  std::vector<std::string> set;
  for (const FittedConstant& each : table.constants)
    set.push_back(fmt::format("{}={:.4g}{}{}", each.key, each.expected, each.unit.empty() ? "" : " ", each.unit));
  return set;
}

namespace {

// The search for the constants that are fitted on a few measured runs.
class AnchorSearch {
 public:
  AnchorSearch(const MeasuredTable& table, const std::vector<MeasuredRun>& runs, const ScenarioOf& scenario)
      : table_(table), scenario_(scenario) {
    for (const MeasuredRun& run : runs)
      if (run.fitted && run.state == RunState::Compared && run.figures.front()) runs_.push_back(run);
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

  // `off`: in standard deviations. A run that may be faulty counts no more than its being so.
  double of_run(double off) const {
    if (table_.faulty <= 0) return off * off;
    return -2 * std::log((1 - table_.faulty) * std::exp(-off * off / 2) + table_.faulty * table_.noise);
  }

  double loss(const std::vector<double>& values) {
    ++tried_;
    std::vector<std::string> set;
    for (std::size_t i = 0; i < values.size(); ++i)
      set.push_back(table_.constants[i].key + "=" + text(i, values[i]));
    double sum = 0;
    for (const PredictedRun& each : predict(table_, runs_, scenario_, set, false)) {
      if (each.run.state != RunState::Compared) throw InputError(each.run.place, "makes no scenario: " + each.run.why);
      sum += of_run(std::log1p(*each.off(0)) / table_.noise);
    }
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

Fit fit(const MeasuredTable& table, const std::vector<MeasuredRun>& runs, const ScenarioOf& scenario) {
  if (table.constants.empty()) throw InputError(table.place, "measured.constants", "nothing to fit");
  if (std::none_of(runs.begin(), runs.end(), [](const MeasuredRun& run) { return run.fitted; }))
    throw InputError(table.place, "measured.fit_every", "no line to fit on; use a smaller number");
  return AnchorSearch(table, runs, scenario).found();
}

}  // namespace pipewright::planner
