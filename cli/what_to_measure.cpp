#include "cli/what_to_measure.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/cost/cost_model.hpp"
#include "io/format_quantity.hpp"
#include "io/writers/interval_text.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "planner/what_if/speed_range.hpp"

namespace pipewright {
namespace {

std::string in_words(Time stated, const SpeedRange& range) {
  const auto& causes = range.causes;
  const auto next = std::find_if(causes.begin(), causes.end(), [](const RangeCause& c) { return !c.measure.empty(); });
  if (next == causes.end()) return "nothing is left to measure";
  const bool all_measured = std::all_of(causes.begin(), causes.end(), [](const RangeCause& c) {
    return c.measure.empty() || c.measure.starts_with("calibrate with") || c.measure.starts_with("calibrate on");
  });
  return fmt::format("{}{}, by {}: the step of {}, {}, would have {}",
                     all_measured ? "every operation is measured; the least sure: " : "", next->what, next->measure,
                     short_time(stated, 4), within_90(short_time(range.fastest, 4), short_time(range.slowest, 4)),
                     within_90(short_time(next->fastest, 4), short_time(next->slowest, 4)));
}

}  // namespace

std::string what_to_measure(const Scenario& priced) {
  const std::string head = fmt::format("to measure next for {}: ", priced.name.empty() ? "the scenario" : priced.name);
  try {
    const CostModel cost(priced);
    Answer answer = price(find_plan(priced, cost), cost, Engine::Auto);
    settle(answer, Engine::Auto);
    const std::optional<SpeedRange> range = speed_range(answer, Engine::Auto).range;
    return head + (range ? in_words(answer.report.step_time, *range) : "nothing; no time of it has an error");
  } catch (const InputError& error) {
    return head + "not known, as it is not priced: " + error.what();
  }
}

}  // namespace pipewright
