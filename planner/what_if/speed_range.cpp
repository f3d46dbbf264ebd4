#include "planner/what_if/speed_range.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/cluster/measured_device.hpp"
#include "core/cost/cost_model.hpp"
#include "core/cost/step_pricer.hpp"
#include "planner/price.hpp"
#include "planner/what_if/sensitivity.hpp"
#include "sim/static_order.hpp"

namespace pipewright {
namespace {

constexpr double kSigmas90 = 1.645;  // 90 % of a normal distribution lie within so many standard deviations

bool has_band(const Scenario& scenario) {
  if (scenario.cost != CostSourceKind::Roofline || scenario.model.works.empty()) return false;
  for (int c = 0; c < scenario.cluster.classes(); ++c) {
    if (scenario.cluster.device_of(c).measured) return true;
    for (const auto& each : scenario.cluster.device_of(c).efficiency)
      if (each && each->band > 0) return true;
  }
  return false;
}

// sign: +1 the upper ends, -1 the lower ones.
Scenario at_the_ends(const Scenario& scenario, double sign) {
  Scenario changed = scenario;
  each_device(changed.cluster, [sign](Device& device) {
    for (auto& each : device.efficiency)
      if (each) each->scale(1 + sign * each->band);
    if (device.measured) device.measured = moved(*device.measured, -sign * kSigmas90);
  });
  return changed;
}

// The plan on another scenario, run as it was.
Time repeated(const Answer& answer, const Scenario& changed, Engine engine) {
  const CostModel cost(changed);
  return repeated_step_time(answer, step_costs(answer.plan, cost, answer.costs.fold), engine);
}

// Whether copies that run alike can stand for one another: core/cost/step_pricer.hpp.
bool has_alike_copies(const Answer& answer) {
  const Plan& plan = answer.plan;
  return answer.schedule.flush && answer.scenario->cluster.classes() == 1 && answer.costs.loads.empty() &&
         plan.last_micro_batch_size == plan.micro_batch_size;
}

// By fixed orders, one copy for all that lie alike on the cluster.
Time of_alike_copies(const Plan& plan, const Scenario& scenario) {
  const CostModel cost(scenario);
  StepPricer pricer(plan, cost);
  const StepCosts costs = pricer.costs(plan.layers, plan.recompute, plan.rebuilt);
  return static_order_makespan(make_schedule(plan, costs.shape), costs);
}

// The step at both ends of the bands.
struct Ends {
  Time better, worse;
};
Ends ends(const Answer& answer, Engine engine, std::int64_t largest_run) {
  const Scenario upper = at_the_ends(*answer.scenario, 1), lower = at_the_ends(*answer.scenario, -1);
  if (run_size(answer.schedule, answer.costs) <= largest_run || !has_alike_copies(answer))
    return {repeated(answer, upper, engine), repeated(answer, lower, engine)};
  const Time stated = of_alike_copies(answer.plan, *answer.scenario), whole = answer.report.step_time;
  if (stated == Time{}) return {whole, whole};
  return {scaled(whole, of_alike_copies(answer.plan, upper).value, stated.value),
          scaled(whole, of_alike_copies(answer.plan, lower).value, stated.value)};
}

}  // namespace

SpeedRangeAnswer speed_range(const Answer& answer, Engine engine, std::optional<std::int64_t> largest_run) {
  const Time stated = answer.report.step_time;
  if (!has_band(*answer.scenario) || stated == Time{}) return {};
  const auto [better, worse] = ends(answer, engine, largest_run.value_or(largest_repeated_run(answer.timeline)));
  SpeedRangeAnswer result;
  SpeedRange& range = result.range.emplace(
      SpeedRange{.fastest = std::min({better, stated, worse}), .slowest = std::max({better, stated, worse})});
  const auto rate = [&](Time time) { return time > Time{} ? answer.report.samples_per_s * ratio(stated, time) : 0; };
  range.samples_per_s_low = rate(range.slowest);
  range.samples_per_s_high = rate(range.fastest);
  if (better > stated || worse < stated)
    result.caution = fmt::format(
        "better devices do not always make shorter steps here: {:.4g} s with every efficiency at the upper end of its "
        "band, {:.4g} s as stated, {:.4g} s at the lower end; the schedule settles into different orders, so take the "
        "range as what may happen either way",
        seconds(better), seconds(stated), seconds(worse));
  return result;
}

std::optional<SpeedRange> speed_range(const Found& found) {
  if (!has_band(*found.scenario)) return std::nullopt;
  const CostModel cost(*found.scenario);
  Answer whole = price(found.plan, cost, Engine::Auto);
  settle(whole, Engine::Auto);
  return speed_range(whole, Engine::Auto).range;
}

}  // namespace pipewright
