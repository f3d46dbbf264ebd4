#include "planner/what_if/no_effect.hpp"

#include <algorithm>

#include "sim/schedules/table.hpp"

namespace pipewright {
namespace {

// Stages between the producer of a tensor and a user of it: those are what `skips` is about.
bool skips_a_stage(const Model& model, const Plan& plan) {
  const auto chunk_of = [&](LayerId layer) {
    const auto holds = [&](const LayerRange& range) { return layer < range.end; };
    return std::find_if(plan.layers.begin(), plan.layers.end(), holds) - plan.layers.begin();
  };
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    for (const LayerId input : model.layers[i].inputs)
      if (chunk_of(static_cast<LayerId>(i)) - chunk_of(input) > 1) return true;
  return false;
}

}  // namespace

std::vector<std::string> options_without_effect(const Scenario& scenario, const Plan& plan) {
  std::vector<std::string> lines;
  const ScheduleRule* rule = find_schedule(plan.schedule);
  if (plan.vertical_sync && rule != nullptr && rule->flush)
    lines.push_back("plan.vertical_sync has no effect: " + plan.schedule +
                    " flushes, so every stage has one version of its weights; it belongs to schedule: pipedream");
  const auto none = [](Recompute recompute) { return recompute == Recompute::None; };
  if (plan.recompute_except_last && std::all_of(plan.recompute.begin(), plan.recompute.end(), none))
    lines.push_back("plan.recompute_except_last has no effect: no stage recomputes; it needs recompute: full");
  if (plan.skips == Skips::Direct && !skips_a_stage(scenario.model, plan))
    lines.push_back("plan.skips: direct has no effect: no tensor of this partition skips a stage");
  return lines;
}

}  // namespace pipewright
