#include "planner/what_if/speed_range.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/cluster/measured_device.hpp"
#include "core/cost/cost_model.hpp"
#include "planner/price.hpp"
#include "planner/what_if/sensitivity.hpp"

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
Time at_the_ends(const Answer& answer, double sign, Engine engine) {
  Scenario changed = *answer.scenario;
  each_device(changed.cluster, [sign](Device& device) {
    for (auto& each : device.efficiency)
      if (each)
        for (auto& [work, share] : each->curve)
          share = std::min(1.0, share * (1 + sign * each->band));
    if (device.measured) device.measured = moved(*device.measured, -sign * kSigmas90);
  });
  const CostModel cost(changed);
  return repeated_step_time(answer, step_costs(answer.plan, cost, answer.costs.fold), engine);
}

}  // namespace

SpeedRangeAnswer speed_range(const Answer& answer, Engine engine) {
  const Time stated = answer.report.step_time;
  if (!has_band(*answer.scenario) || stated == Time{} ||
      run_size(answer.schedule, answer.costs) > largest_repeated_run(answer.timeline))
    return {};
  const Time better = at_the_ends(answer, 1, engine), worse = at_the_ends(answer, -1, engine);
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

}  // namespace pipewright
