#include "study/what_to_measure.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "core/cost/measured_times.hpp"
#include "io/text/format_quantity.hpp"
#include "io/writers/interval_text.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "planner/what_if/speed_range.hpp"

namespace pipewright::study {
namespace {

// No layer's time, nor that of the update, follows from FLOPs, bytes and shares.
bool all_measured(const Answer& answer) {
  const Scenario& scenario = *answer.scenario;
  if (scenario.cost == CostSourceKind::Profile) return true;
  for (int c = 0; c < scenario.cluster.classes(); ++c) {
    const Device& device = scenario.cluster.device_of(c);
    if (!device.measured) return false;
    const MeasuredTimes times(scenario, device);
    if (!times.all_of(scenario.model, answer.plan.micro_batch_size)) return false;
    for (const StageReport& stage : answer.report.stages)
      if (!times.update(updated_parameters({stage.parameters, 0}, answer.plan, stage.stage, scenario.training)))
        return false;
  }
  return true;
}

std::string in_words(const Answer& answer, const SpeedRange& range) {
  const auto& causes = range.causes;
  const auto next = std::ranges::find_if(causes, [](const RangeCause& c) { return !c.measure.empty(); });
  if (next == causes.end()) return "nothing is left to measure";
  return fmt::format("{}{}, by {}: the step of {}, {}, would have {}",
                     all_measured(answer) ? "every operation is measured; the least sure: " : "", next->what,
                     next->measure, short_time(answer.report.step_time, 4),
                     within_90(short_time(range.fastest, 4), short_time(range.slowest, 4)),
                     within_90(short_time(next->fastest, 4), short_time(next->slowest, 4)));
}

}  // namespace

std::string what_to_measure(const Scenario& priced) {
  const std::string head = fmt::format("to measure next for {}: ", priced.name.empty() ? "the scenario" : priced.name);
  try {
    const CostModel cost(priced);
    Answer answer = price(find_plan(priced, cost), cost, Engine::Auto);
    settle(answer, Engine::Auto);
    const SpeedRangeAnswer range = speed_range(answer, Engine::Auto);
    if (range.range) return head + in_words(answer, *range.range);
    return head + (range.caution.empty() ? "nothing; no time of it has an error" : "not known; " + range.caution);
  } catch (const InputError& error) {
    return head + "not known, as it is not priced: " + error.what();
  }
}

}  // namespace pipewright::study
