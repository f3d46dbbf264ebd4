#include "planner/partitioners/stage_needs.hpp"

#include <algorithm>

#include "core/cost/buckets.hpp"
#include "core/plan/op_index.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::planner {
namespace {

int micro_batches_walked(const Plan& plan, int all) {
  const ScheduleRule& rule = *find_schedule(plan.schedule);
  const bool repeats = rule.flush && rule.bounded_in_flight && !rule.facts.groups_of_stages;
  const bool alike = plan.last_micro_batch_size == plan.micro_batch_size && !plan.recompute_except_last;
  return repeats && alike ? std::min(all, 2 * plan.positions() + 1) : all;
}

}  // namespace

StageNeeds::StageNeeds(const Plan& plan, const CostModel& cost, const LayerCosts& layers)
    : plan_(plan), cost_(cost), costs_{layers, layers} {
  if (plan.last_micro_batch_size != plan.micro_batch_size) costs_[1] = cost.layers(plan.last_micro_batch_size);
  const Scenario& scenario = cost.scenario();
  layers_ = static_cast<LayerId>(scenario.model.layers.size());
  plan_.layers.assign(at(plan.stages), {0, layers_});
  ScheduleShape shape = schedule_shape(plan_, scenario.model, scenario.training);
  shape.buckets.clear();  // they have no part in a walk
  shape.micro_batches = micro_batches_walked(plan, shape.micro_batches);
  schedule_ = find_schedule(plan_.schedule)->generate(shape);
}

StageNeeds::StageNeeds(const Plan& plan, const CostModel& cost)
    : StageNeeds(plan, cost, cost.layers(plan.micro_batch_size)) {}

Bytes StageNeeds::need(StageId k, LayerRange range) {
  const auto [entry, absent] = known_.try_emplace({k, range.begin, range.end});
  if (absent) {
    lay_out(k, range);
    if (plan_.recompute[k] == Recompute::Knapsack)
      return entry->second = least_need_of_stage(plan_, cost_, costs_, schedule_, k).need;
    const MemoryModel memory = memory_of_stage(plan_, cost_, costs_, k);
    entry->second = core::need(memory, peak(memory, schedule_, schedule_.seating().first_position(k)).bytes, k).to_fit;
  }
  return entry->second;
}

RebuiltStage StageNeeds::rebuilt(StageId k, LayerRange range, Bytes room) {
  lay_out(k, range);
  return rebuild_stage(plan_, cost_, costs_, schedule_, k, room);
}

bool StageNeeds::tensors_do_not_grow() const {
  if (plan_.skips == Skips::Direct) return false;
  const std::vector<Bytes> over = bytes_over_cuts(cost_.scenario().model, costs_[0].activation);
  for (std::size_t cut = 2; cut + 1 < over.size(); ++cut)
    if (over[cut] > over[cut - 1]) return false;
  const auto& all = cost_.scenario().model.layers;  // inner layers that read the model's own input: a boundary, too
  return std::none_of(all.begin() + 1, all.end(), [](const Layer& layer) { return layer.inputs.empty(); });
}

// Stage k holds the range, and its neighbours everything else.
void StageNeeds::lay_out(StageId k, LayerRange range) {
  for (StageId stage = 0; stage < plan_.stages; ++stage)
    plan_.layers[as<VirtualStageId>(stage)] = stage < k ? LayerRange{stage == 0 ? LayerId{0} : range.begin, range.begin}
                                              : stage == k
                                                  ? range
                                                  : LayerRange{stage == k + 1 ? range.end : LayerId{layers_}, layers_};
}

}  // namespace pipewright::planner
