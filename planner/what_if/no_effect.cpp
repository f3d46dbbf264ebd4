#include "planner/what_if/no_effect.hpp"

#include <algorithm>

#include "core/model/attention_cores.hpp"
#include "planner/listed.hpp"
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

bool has_experts(const Model& model) {
  const auto grouped = [](const Operator& op) { return op.shape.groups > 1 && !op.shape.of_sample; };
  return std::any_of(model.works.begin(), model.works.end(), [&](const Work& work) {
    return std::any_of(work.operators.begin(), work.operators.end(), grouped);
  });
}

}  // namespace

std::vector<std::string> options_without_effect(const Scenario& scenario, const Plan& plan) {
  std::vector<std::string> lines;
  const ScheduleRule* rule = find_schedule(plan.schedule);
  if (plan.vertical_sync && rule != nullptr && rule->flush)
    lines.push_back("plan.vertical_sync has no effect: " + plan.schedule +
                    " flushes, so every stage has one version of its weights; it belongs to schedule: " +
                    listed(schedule_names([](const ScheduleRule& each) { return !each.flush; }), "or"));
  const auto whole = [](Recompute recompute) { return recompute == Recompute::Full; };
  if (plan.recompute_except_last && std::none_of(plan.recompute.begin(), plan.recompute.end(), whole))
    lines.push_back("plan.recompute_except_last has no effect: no stage recomputes; it needs recompute: full");
  const auto in_part = [](Recompute recompute) { return recompute == Recompute::Selective; };
  if (std::any_of(plan.recompute.begin(), plan.recompute.end(), in_part) && !has_attention_core(scenario.model))
    lines.push_back(
        "plan.recompute: selective has no effect: the model has no attention core that keeps its scores (layers with "
        "stated figures, flash attention, or no attention at all); it is the same as none");
  const auto by_blocks = [](Recompute recompute) { return recompute == Recompute::Blocks; };
  if (std::any_of(plan.recompute.begin(), plan.recompute.end(), by_blocks) &&
      std::none_of(scenario.model.layers.begin(), scenario.model.layers.end(),
                   [](const Layer& layer) { return layer.block; }))
    lines.push_back(
        "plan.recompute: blocks has no effect: the model has no blocks of a Transformer; it is the same as none");
  if (scenario.plan.scatter_gather.value && plan.tensor_parallel == 1)
    lines.push_back(
        "plan.scatter_gather has no effect: it divides tensors among the devices of a tensor-parallel group");
  if (scenario.training.zero > 0 && plan.data_parallel == 1 &&
      std::all_of(plan.replicas.begin(), plan.replicas.end(), [](int r) { return r == 1; }))
    lines.push_back("training.zero: 1 has no effect: each stage has a single worker, so there is nothing to shard");
  const Training& training = scenario.training;
  if (training.execution != Execution::Eager && scenario.cost != CostSourceKind::Roofline)
    lines.push_back("training.execution has no effect: times of layers are stated or measured, the host's with them");
  if (training.expert_products == ExpertProducts::Looped && !has_experts(scenario.model))
    lines.push_back("training.expert_products: looped has no effect: the model has no experts");
  if (plan.skips == Skips::Direct && !skips_a_stage(scenario.model, plan))
    lines.push_back("plan.skips: direct has no effect: no tensor of this partition skips a stage");
  return lines;
}

}  // namespace pipewright
