#include "planner/what_if/speed_range.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/cost/cost_model.hpp"
#include "core/cost/step_pricer.hpp"
#include "core/folds.hpp"
#include "planner/price.hpp"
#include "planner/what_if/range_sources.hpp"
#include "planner/what_if/sensitivity.hpp"

namespace pipewright::planner {
namespace {

constexpr double kNothing = 1e-6;  // effects below it are rounding

// Whether copies that run alike can stand for one another: core/cost/step_pricer.hpp.
bool has_alike_copies(const Answer& answer) {
  const Plan& plan = answer.plan;
  return answer.schedule.flush && answer.scenario->cluster.classes() == 1 && answer.costs.loads.empty() &&
         plan.last_micro_batch_size == plan.micro_batch_size;
}

// The answer's step under changed figures.
class Repeated {
 public:
  Repeated(const Answer& answer, Engine engine, std::int64_t largest_run) : answer_(answer), engine_(engine) {
    if (run_size(answer.schedule, answer.costs) > largest_run && has_alike_copies(answer)) alike_ = of_alike_copies();
  }

  Time with(const RangeSource& source, double place) {
    changed_->cluster = answer_.scenario->cluster, changed_->profile = answer_.scenario->profile;
    source.move(*changed_, place);
    if (alike_ > Time{}) return scaled(answer_.report.step_time, of_alike_copies().value, alike_.value);
    const CostModel cost(changed_);
    return repeated_step_time(answer_, step_costs(answer_.plan, cost, answer_.costs.fold), engine_);
  }

 private:
  // By fixed orders, one copy for all that lie alike on the cluster.
  Time of_alike_copies() const {
    const Plan& plan = answer_.plan;
    const CostModel cost(changed_);
    StepPricer pricer(plan, cost);
    const StepCosts costs = pricer.costs(plan.layers, plan.recompute, plan.rebuilt);
    return static_step(plan, make_schedule(plan, costs.shape), costs);
  }

  const Answer& answer_;
  Engine engine_;
  std::shared_ptr<Scenario> changed_ = std::make_shared<Scenario>(*answer_.scenario);
  Time alike_;  // of the copies that run alike, as stated; 0: each copy is repeated
};

RangeCause cause(const RangeSource& source, Time stated, Time better, Time worse) {
  const auto [shortest, longest] = std::minmax({better, stated, worse});
  return {.what = source.what,
          .known = source.known,
          .measure = source.measure,
          .faster = std::log(ratio(stated, shortest)),
          .slower = std::log(ratio(longest, stated))};
}

double squares(const RangeCause& cause) {
  return cause.faster * cause.faster + cause.slower * cause.slower;
}

// Without one of the causes, or with all of them.
std::pair<Time, Time> ends(Time stated, const std::vector<RangeCause>& causes, std::size_t without) {
  double faster = 0, slower = 0;
  for (std::size_t i = 0; i < causes.size(); ++i)
    if (i != without) faster += causes[i].faster * causes[i].faster, slower += causes[i].slower * causes[i].slower;
  const auto at = [&](double exponent) {
    return Time{rounded(static_cast<double>(stated.value) * std::exp(exponent), "the 90 % interval")};
  };
  return {at(-std::sqrt(faster)), at(std::sqrt(slower))};
}

// How many of the first causes that can be measured leave half of the width at most: that of the logarithms.
int to_halve(const std::vector<RangeCause>& causes) {
  double faster = 0, slower = 0;
  for (const RangeCause& each : causes)
    faster += each.faster * each.faster, slower += each.slower * each.slower;
  const double half = (std::sqrt(faster) + std::sqrt(slower)) / 2;
  int measured = 0;
  for (const RangeCause& each : causes) {
    if (each.measure.empty()) continue;
    faster = std::max(0.0, faster - each.faster * each.faster);
    slower = std::max(0.0, slower - each.slower * each.slower);
    ++measured;
    if (std::sqrt(faster) + std::sqrt(slower) <= half) return measured;
  }
  return 0;
}

RangeCause left_out() {
  return {.what = "what the model leaves out",
          .known = fmt::format("+-{:.4g} %, calibrated on measured runs", 100 * kLeftOut),
          .faster = std::log(1 + kLeftOut),
          .slower = std::log(1 + kLeftOut)};
}

}  // namespace

SpeedRange combined(Time stated, double samples_per_s, std::vector<RangeCause> causes) {
  std::erase_if(causes, [](const RangeCause& each) { return squares(each) < kNothing * kNothing; });
  std::ranges::stable_sort(causes, [](const RangeCause& a, const RangeCause& b) { return squares(a) > squares(b); });
  auto sum = sum_over<double>(causes, [&](const RangeCause& each) { return squares(each); });
  for (std::size_t i = 0; i < causes.size(); ++i) {
    causes[i].share = squares(causes[i]) / sum;
    std::tie(causes[i].fastest, causes[i].slowest) = ends(stated, causes, i);
  }
  SpeedRange range;
  std::tie(range.fastest, range.slowest) = ends(stated, causes, causes.size());
  const auto rate = [&](Time time) { return time > Time{} ? samples_per_s * ratio(stated, time) : 0; };
  range.samples_per_s_low = rate(range.slowest), range.samples_per_s_high = rate(range.fastest);
  range.to_halve = to_halve(causes);
  range.causes = std::move(causes);
  return range;
}

SpeedRangeAnswer speed_range(const Answer& answer, Engine engine, std::optional<std::int64_t> largest_run) try {
  const Time stated = answer.report.step_time;
  if (stated == Time{}) return {};
  SpeedRangeAnswer result;
  std::vector<RangeSource> sources = range_sources(*answer.scenario);
  const bool from_operators = !sources.empty();
  for (RangeSource& each : profile_sources(*answer.scenario))
    sources.push_back(std::move(each));
  if (sources.empty()) return {};
  std::vector<RangeCause> causes;
  Repeated repeated(answer, engine, largest_run.value_or(largest_repeated_run(answer.timeline) / 4));
  for (const RangeSource& source : sources) {
    const Time better = repeated.with(source, 1), worse = repeated.with(source, -1);
    causes.push_back(cause(source, stated, better, worse));
    if (result.caution.empty() && (better > stated || worse < stated))
      result.caution = fmt::format(
          "better figures do not always make shorter steps here: {:.4g} s with {} at the upper end, {:.4g} s as "
          "stated, {:.4g} s at the lower end; the schedule settles into different orders",
          seconds(better), source.what, seconds(stated), seconds(worse));
  }
  if (from_operators) causes.push_back(left_out());
  result.range = combined(stated, answer.report.samples_per_s, std::move(causes));
  return result;
} catch (const InputError& error) {
  return {.range = std::nullopt, .caution = fmt::format("no 90 % interval: at an end of it {}", error.what())};
}

std::optional<SpeedRange> speed_range(const Found& found) {
  if (range_sources(*found.scenario).empty() && profile_sources(*found.scenario).empty()) return std::nullopt;
  const CostModel cost(found.scenario);
  Answer whole = price(found.plan, cost, Engine::Auto);
  settle(whole, Engine::Auto);
  return speed_range(whole, Engine::Auto).range;
}

}  // namespace pipewright::planner
