// The search for the constants that are fitted on a few measured runs.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "planner/measured.hpp"

namespace pipewright {
namespace {

class Search {
 public:
  Search(const MeasuredTable& table, const std::vector<MeasuredRun>& runs, const ScenarioOf& scenario)
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
      sum += of_run(std::log(each.figures.front() / *each.run.figures.front()) / table_.noise);
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
  return Search(table, runs, scenario).found();
}

}  // namespace pipewright
