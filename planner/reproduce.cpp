#include "planner/reproduce.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "planner/capacity.hpp"
#include "planner/figures.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "planner/replicated.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

// A variant of the scenario, and its priced plan once somebody asks: parameters need none.
class PricedVariant {
 public:
  explicit PricedVariant(Scenario scenario) : scenario_(std::make_shared<const Scenario>(std::move(scenario))) {}

  const Scenario& scenario() const { return *scenario_; }
  const Answer& answer() {
    if (!answer_) {
      cost_ = std::make_unique<CostModel>(scenario_);
      answer_ = std::make_unique<Answer>(price(find_plan(*scenario_, *cost_), *cost_, Engine::Auto));
    }
    return *answer_;
  }
  Time op_overhead() {
    answer();
    return cost_->source().op_overhead();
  }
  const Answer* priced() const { return answer_.get(); }
  std::string note;  // how it was made, when not by the file alone

 private:
  std::shared_ptr<const Scenario> scenario_;
  std::unique_ptr<CostModel> cost_;
  std::unique_ptr<Answer> answer_;
};

double variant_figure(PricedVariant& variant, const FigureSought& quantity) {
  if (const auto figure = figure_of(variant.scenario(), quantity)) return *figure;
  return figure_of(variant.answer(), quantity);
}

// K M / (M + K - 1): throughput over one stage with one micro-batch in flight, equal stages, free communication.
double bubble_bound(const Plan& plan) {
  const double k = plan.stages, m = static_cast<double>(plan.micro_batches);
  return k * m / (m + k - 1) * plan.data_parallel;
}

// Step time if idle time were the published share of the busiest worker's span, passes had no overhead and the update
// took no time:     work / (1 - rate)
double step_time_at(PricedVariant& variant, double rate) {
  const Answer& answer = variant.answer();
  const Time overhead = variant.op_overhead();
  Time most;
  for (const WorkerReport& worker : answer.report.workers) {
    const auto& ops = answer.schedule.lane_of(worker.id).compute;
    const auto passes = std::ranges::count_if(ops, [](const Op& op) { return op.kind != Kind::Update; });
    most = std::max(most, worker.busy - worker.update - passes * overhead);
  }
  return seconds(most) / (1 - rate);
}

// In SI base units, before ratio_to.
std::optional<double> baseline_of(PricedVariant& variant, const Expectation& row) {
  switch (row.baseline.kind) {
    case Baseline::Kind::None: return std::nullopt;
    case Baseline::Kind::BubbleBound: return bubble_bound(variant.answer().plan);
    case Baseline::Kind::BubbleFormula: {
      const Answer& answer = variant.answer();
      const auto of_shape = find_schedule(answer.plan.schedule)->bubble;
      const auto formula = of_shape != nullptr ? of_shape(answer.schedule.shape) : std::nullopt;
      if (!formula) throw InputError(Place{}, "baseline", answer.plan.schedule + " has no textbook bubble; write none");
      return static_cast<double>(formula->numerator) / static_cast<double>(formula->denominator);
    }
    case Baseline::Kind::BubbleRate: {
      const Answer& answer = variant.answer();
      const double time = step_time_at(variant, row.baseline.value);
      if (row.quantity->figure == Figure::StepTime) return time;
      const double devices =
          row.quantity->figure == Figure::SamplesPerSDevice ? static_cast<double>(answer.plan.devices()) : 1;
      return static_cast<double>(answer.plan.global_batch_size) / time / devices;
    }
    case Baseline::Kind::Stated: return row.baseline.value * row.unit_size;
  }
  return std::nullopt;
}

// Workers per stage, all copies together.
std::vector<int> workers_per_stage(const Plan& plan) {
  std::vector<int> workers = plan.replicas;
  for (int& each : workers)
    each *= plan.copies();
  return workers;
}

// The best pipeline for this scenario: its plan leaves stages, replicas and places to be found. None of one stage: in
// an asynchronous schedule data parallelism would update one round late, and the row that ratios are to does not.
std::optional<ReplicatedPlan> best_pipeline(const Scenario& scenario) {
  const CostModel cost(scenario);
  Plan shell = find_plan(scenario, cost);
  shell.stages = 1;
  shell.layers.clear(), shell.replicas.clear(), shell.device.clear();
  const ReplicatedAnswer found = replicated_plans(shell, cost, {.least_stages = 2, .top = 1});
  return found.ranking.empty() ? std::nullopt : std::optional(found.ranking.front());
}

// Where the tolerance ends; a hair more, for the rounding of the last digit of a double.
bool within(double predicted, double published, const Tolerance& tolerance) {
  const double room = tolerance.relative ? tolerance.value * std::abs(published) : tolerance.value;
  return std::abs(predicted - published) <= room + 1e-12 * std::max(std::abs(published), std::abs(predicted));
}

class TableEvaluation {
 public:
  TableEvaluation(const ExpectationTable& table, const VariantSource& source) : table_(table), source_(source) {}

  Cell cell(const Expectation& row, const std::string& file) {
    Cell cell{.row = row, .file = file, .reference = is_reference(row)};
    if (row.status == CellStatus::NotSimulated) return cell;
    try {
      evaluate(row, cell);
    } catch (const OverflowError& error) {
      throw InputError(row.place, fmt::format("\"{}\": {}", row.name, error.what()));
    } catch (const InputError& error) {
      const std::string what = error.what();  // has a place of its own, as a rule
      throw InputError(what + fmt::format("\n{}\"{}\" asks for that", head(row.place), row.name));
    }
    return cell;
  }

 private:
  bool is_reference(const Expectation& row) const {
    if (row.ratio_to.empty()) return false;
    const Expectation& base = base_of(row);
    return row.changes == base.changes && row.largest == base.largest;
  }

  PricedVariant& variant(const Expectation& row) {
    auto& found = variants_[{row.changes, row.largest}];
    if (found) return *found;
    std::vector<std::string> set;
    if (!row.largest.empty()) {
      const std::int64_t value = largest(row.largest, row);
      set.push_back(fmt::format("{}={}", row.largest, value));
    }
    found = std::make_unique<PricedVariant>(source_.scenario(row.changes, set));
    if (!set.empty()) found->note = "the largest that fits: " + set.front();
    return *found;
  }

  std::int64_t largest(const std::string& key, const Expectation& row) {
    const ScenarioWith with = [&](std::int64_t value) {
      return source_.scenario(row.changes, {key + "=" + std::to_string(value)});
    };
    const std::int64_t first = source_.whole_number(key, row.changes).value_or(1);
    const Capacity found = capacity(key, with, {.first = first, .most = std::nullopt});
    if (!found.largest) throw InputError(fmt::format("no value of {} fits", key));
    return *found.largest;
  }

  double figure(const Expectation& row) {
    if (row.quantity->figure == Figure::Capacity) return static_cast<double>(largest(row.quantity->of, row));
    return variant_figure(variant(row), *row.quantity);
  }

  const Expectation& base_of(const Expectation& row) const {
    return *std::ranges::find_if(table_.rows, [&](const Expectation& other) { return other.name == row.ratio_to; });
  }

  void evaluate(const Expectation& row, Cell& cell) {
    double predicted = figure(row);
    if (row.quantity->figure == Figure::Capacity) return compare(row, predicted, std::nullopt, cell);
    PricedVariant& own = variant(row);
    cell.note = own.note;
    std::optional<double> baseline = baseline_of(own, row);
    if (!row.ratio_to.empty()) {
      const Expectation& base = base_of(row);
      PricedVariant& other = variant(base);
      const double divisor = figure(base);
      predicted = divisor == 0 ? 0 : predicted / divisor;
      if (baseline && row.baseline.kind == Baseline::Kind::BubbleBound)
        baseline = *baseline / bubble_bound(other.answer().plan);
    }
    compare(row, predicted, baseline, cell);
    if (!cell.reference) bound(row, predicted, cell);
    if (row.search) cell.choice = choice(row, predicted);
    if (row.time_to_accuracy) cell.time_to_accuracy = predicted * *row.time_to_accuracy / *row.published;
    // Whether it fits is asked for by some cells, and of no importance to others that ask for sizes.
    const bool timed = dimension(row.quantity->figure) == Dimension::Duration ||
                       dimension(row.quantity->figure) == Dimension::Rate ||
                       dimension(row.quantity->figure) == Dimension::Share;
    if (timed && own.priced() && !own.priced()->report.fits)
      cell.note = "does not fit its devices: " + own.priced()->report.shortfall.reason;
  }

  // Of the planner's pipeline and data parallelism (the row that the ratio is to) the faster.
  PlanChoice choice(const Expectation& row, double speed) {
    const Expectation& base = base_of(row);
    PlanChoice result{.published = workers_per_stage(variant(row).answer().plan),
                      .own = workers_per_stage(variant(base).answer().plan),
                      .published_speed = speed,
                      .own_speed = 1};
    const double divisor = figure(base);
    if (const auto found = best_pipeline(source_.scenario(*row.search, {}));
        found && found->samples_per_s > divisor * result.own_speed)
      result.own = found->plan.replicas, result.own_speed = found->samples_per_s / divisor, result.idle = found->idle;
    return result;
  }

  // A row's figure at one point of the box. Kept as a number: the priced plans of a whole box would not be small.
  double figure_at(const Expectation& row, std::size_t point) {
    const auto [found, is_new] = box_.try_emplace({row.box[point], row.quantity->text}, 0.0);
    if (is_new) {
      PricedVariant variant(source_.scenario(row.box[point], {}));
      found->second = variant_figure(variant, *row.quantity);
    }
    return found->second;
  }

  // The least and the largest prediction over the box.
  void bound(const Expectation& row, double nominal, Cell& cell) {
    if (row.box.empty()) return;
    double lowest = nominal, highest = nominal;
    for (std::size_t point = 0; point < row.box.size(); ++point) {
      double value = figure_at(row, point);
      if (!row.ratio_to.empty()) {
        const double divisor = figure_at(base_of(row), point);
        value = divisor == 0 ? 0 : value / divisor;
      }
      lowest = std::min(lowest, value), highest = std::max(highest, value);
    }
    cell.lowest = lowest / row.unit_size, cell.highest = highest / row.unit_size;
  }

  static void compare(const Expectation& row, double predicted, std::optional<double> baseline, Cell& cell) {
    cell.predicted = predicted / row.unit_size;
    if (baseline) cell.baseline = *baseline / row.unit_size;
    const double published = *row.published;
    if (row.tolerance) cell.within = within(*cell.predicted, published, *row.tolerance);
    if (published == 0 || row.quantity->figure == Figure::Fits) return;
    cell.error = *cell.predicted / published - 1;
    if (cell.baseline) cell.baseline_error = *cell.baseline / published - 1;
  }

  const ExpectationTable& table_;
  const VariantSource& source_;
  std::map<std::pair<int, std::string>, std::unique_ptr<PricedVariant>> variants_;
  std::map<std::pair<int, std::string>, double> box_;  // by changes and quantity
};

}  // namespace

std::vector<Cell> reproduce(const ExpectationTable& table, const std::string& file, const VariantSource& variants) {
  TableEvaluation evaluation(table, variants);
  std::vector<Cell> cells;
  for (const Expectation& row : table.rows)
    if (row.published || row.status == CellStatus::NotSimulated) cells.push_back(evaluation.cell(row, file));
  return cells;
}

}  // namespace pipewright::planner
