#include "core/cost/state_exchange.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/cost/low_precision.hpp"
#include "core/plan/mesh.hpp"
#include "core/plan/tied_tables.hpp"

namespace pipewright::core {
namespace {

AllReduceGroup group_of(DeviceGroups members, const CostModel& cost, const Topology& topology) {
  const Cluster& cluster = cost.scenario().cluster;
  return AllReduceGroup::at_once(std::move(members), topology, cluster.devices_per_node, &cluster);
}
AllReduceGroup group_of(DeviceGroups members, const CostModel& cost) {
  return group_of(std::move(members), cost, cost.topology());
}

// One after the other.
void append(Collective& all, Collective next) {
  all.time = checked_sum(all.time, next.time);
  std::move(next.phases.begin(), next.phases.end(), std::back_inserter(all.phases));
}

// Of experts: which of a stage's devices hold the same. Where tensor-parallel groups hold whole sets of them, the leads stand
// for all members, as elsewhere; else all of them are listed, on links of which nobody else takes a part.
DeviceGroups expert_groups(const Plan& plan, const std::vector<DeviceId>& leads) {
  const int t = plan.tensor_parallel;
  const std::int64_t together = plan.split().expert_devices();
  const std::int64_t copies = static_cast<std::int64_t>(leads.size()) * t / together;
  const DeviceGroups all =
      Mesh(with_members(leads, t), {{Axis::Expert, together}, {Axis::Copy, copies}}).along({Axis::Copy});
  if (together % t != 0) return all;
  DeviceGroups of_leads;
  for (std::size_t group = 0; group < all.size(); group += static_cast<std::size_t>(t))
    of_leads.push_back(all[group]);
  return of_leads;
}

}  // namespace

StateExchange::StateExchange(const Plan& plan, StageId stage, const CostModel& cost) : cost_(cost) {
  const std::vector<DeviceId> all = members(plan, plan.seating().chunk_of(stage, 0));
  const auto count = static_cast<std::int64_t>(all.size());
  const std::int64_t inside = plan.sharded_over(stage);
  const Mesh mesh(all, {{Axis::Shard, inside}, {Axis::Replica, count / inside}});
  if (cost.scenario().training.zero == 0 || inside == count) {
    groups_.push_back(group_of({all}, cost));
  } else {
    groups_.push_back(group_of(mesh.along({Axis::Shard}), cost));
    groups_.push_back(group_of(mesh.along({Axis::Replica}), cost));
  }
  dense_ = groups_.size();
  if (plan.resharding && plan.resharding->over > 0) {
    const std::int64_t few = plan.resharding->over;
    groups_.push_back(
        group_of(Mesh(all, {{Axis::Shard, few}, {Axis::Replica, count / few}}).along({Axis::Shard}), cost));
    return;
  }
  if (!plan.split().sends_tokens() || plan.expert_copies() < 2) return;
  const bool by_leads = plan.split().expert_devices() % plan.tensor_parallel == 0;
  if (by_leads) {
    groups_.push_back(group_of(expert_groups(plan, all), cost));
  } else {
    groups_.push_back(group_of(expert_groups(plan, all), cost, Topology(cost.scenario().cluster)));
    groups_.back().keep_no_links();
  }
}

void StateExchange::keep_links(const Fold& fold) {
  for (AllReduceGroup& group : groups_)
    group.keep_links(fold);
}

// As it was measured, which passes no links: all-reduces of a group, or half of one.
std::optional<Collective> StateExchange::measured(std::size_t group, Bytes bytes, int halves) const {
  const std::size_t members = groups_[group].members();
  if (members < 2) return Collective{bytes, {}, {}};
  const std::optional<Time> known =
      bytes == Bytes{} ? std::nullopt : cost_.source().all_reduce(static_cast<int>(members), bytes);
  if (!known) return std::nullopt;
  CollectivePhase phase;
  phase.latency = phase.time = Time{(known->value * halves + 1) / 2};
  return Collective{bytes, phase.time, {phase}};
}

Collective StateExchange::gathering(std::size_t group, Bytes bytes) const {
  if (auto known = measured(group, bytes, 1)) return *std::move(known);
  return groups_[group].gathering(bytes);
}

Collective StateExchange::all_reduce(std::size_t group, Bytes bytes) const {
  if (auto known = measured(group, bytes, 2)) return *std::move(known);
  return groups_[group].best(bytes);
}

Collective StateExchange::reduce_dense(Bytes gradients) const {
  if (cost_.scenario().training.zero == 0) return all_reduce(0, gradients);
  Collective all = gathering(0, gradients);  // a scatter takes as long
  all.bytes = gradients;
  if (dense_ > 1) append(all, all_reduce(1, {gradients.value / static_cast<std::int64_t>(groups_.front().members())}));
  return all;
}

// States of experts are divided among all that hold the same.
Collective StateExchange::reduce_experts(Bytes gradients) const {
  if (cost_.scenario().training.zero == 0) return all_reduce(dense_, gradients);
  return gathering(dense_, gradients);
}

Collective StateExchange::reduce(Share gradients) const {
  Collective all = reduce_dense(gradients.all - gradients.of_experts);
  all.bytes = gradients.all;
  if (gradients.of_experts > Bytes{} && groups_.size() > dense_) append(all, reduce_experts(gradients.of_experts));
  return all;
}

Collective StateExchange::gather(Share weights) const {
  Collective all = gathering(0, weights.all - weights.of_experts);
  all.bytes = weights.all;
  if (weights.of_experts > Bytes{} && groups_.size() > dense_) append(all, gathering(dense_, weights.of_experts));
  return all;
}

Collective StateExchange::gather_of_few(Bytes weights) const {
  return gathering(dense_, weights);
}

StateExchange::Share gathered_weights(const Plan& plan, StageId stage, LayerRange layers, const Scenario& scenario) {
  const Device& device = scenario.cluster.device_of(class_of_stage(plan, scenario.cluster, stage));
  const bool divided = scenario.training.zero >= kWeightsSharded;
  StateExchange::Share sum;
  for (LayerId id = layers.begin; id < layers.end; ++id) {
    const Layer& layer = scenario.model.layers[id];
    const bool in_part = !divided && layer.trained_on_device.has_value();
    const std::int64_t parameters = in_part ? layer.trained() : layer.held();
    const std::int64_t of_experts = in_part ? layer.trained_experts() : layer.expert_parameters;
    const std::int64_t low = in_part ? 0 : low_precision_parameters(scenario, id);
    const Bytes held = weight_bytes(parameters, low, scenario.training, device).held;
    sum.all = checked_sum(sum.all, held);
    if (of_experts > 0)
      sum.of_experts += Bytes{std::llround(static_cast<double>(held.value) * static_cast<double>(of_experts) /
                                           static_cast<double>(parameters))};
  }
  return sum;
}

StateExchange::Share gathered_with_copies(const Plan& plan, VirtualStageId v, LayerRange layers,
                                          const Scenario& scenario) {
  const StageId stage = plan.stage_of(v);
  StateExchange::Share sum = gathered_weights(plan, stage, layers, scenario);
  const Device& device = scenario.cluster.device_of(class_of_stage(plan, scenario.cluster, stage));
  const bool divided = scenario.training.zero >= kWeightsSharded;  // frozen ones, too
  const std::int64_t copied = tables_of(plan, scenario.model, v, layers, divided ? table_copied : table_trained);
  sum.all = checked_sum(sum.all, weight_bytes(copied, 0, scenario.training, device).held);
  return sum;
}

Collective norm_of_gradients(const Plan& plan, const CostModel& cost) {
  constexpr Bytes kNumber{4};
  const std::vector<DeviceId> all = with_members(plan.device, plan.tensor_parallel);
  if (const auto known = cost.source().all_reduce(static_cast<int>(all.size()), kNumber)) {
    CollectivePhase phase;
    phase.latency = phase.time = *known;
    return {kNumber, *known, {phase}};
  }
  const Cluster& cluster = cost.scenario().cluster;
  AllReduceGroup group(all, cost.topology(), cluster.devices_per_node, &cluster);
  group.keep_no_links();
  return group.best(kNumber);
}

bool gathers_chunks(const StepCosts& costs, const Plan& plan) {
  return plan.resharding || costs.shape.updated == UpdatedParts::BehindUpdate;
}

void resize_gathers(StepCosts& costs, const Plan& plan) {
  const bool beside = costs.shape.updated == UpdatedParts::BesideForwards;
  if (beside || gathers_chunks(costs, plan)) costs.gathers.resize(plan.layers.size());
  if (beside || (plan.resharding && plan.resharding->over > 0)) costs.other_gathers.resize(plan.layers.size());
}

}  // namespace pipewright::core
