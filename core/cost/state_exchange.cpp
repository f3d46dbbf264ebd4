#include "core/cost/state_exchange.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/cost/low_precision.hpp"

namespace pipewright {
namespace {

AllReduceGroup group_of(std::vector<std::vector<DeviceId>> members, const CostModel& cost) {
  const Cluster& cluster = cost.scenario().cluster;
  return AllReduceGroup::at_once(std::move(members), cost.topology(), cluster.devices_per_node, &cluster);
}

// One after the other.
void append(Collective& all, Collective next) {
  all.time = checked_sum(all.time, next.time);
  std::move(next.phases.begin(), next.phases.end(), std::back_inserter(all.phases));
}

}  // namespace

StateExchange::StateExchange(const Plan& plan, StageId stage, const CostModel& cost)
    : cost_(cost), gathered_weight_bytes_(gathered_weight_bytes(cost.scenario())) {
  const std::vector<DeviceId> all = members(plan, plan.seating().chunk_of(stage, 0));
  const auto inside = static_cast<std::size_t>(plan.sharded_over(stage));
  if (cost.scenario().training.zero == 0 || inside == all.size()) {
    groups_.push_back(group_of({all}, cost));
    return;
  }
  std::vector<std::vector<DeviceId>> groups, between(inside);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % inside == 0) groups.emplace_back();
    groups.back().push_back(all[i]);
    between[i % inside].push_back(all[i]);
  }
  groups_.push_back(group_of(std::move(groups), cost));
  groups_.push_back(group_of(std::move(between), cost));
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

Collective StateExchange::gathering(Bytes bytes) const {
  if (auto known = measured(0, bytes, 1)) return *std::move(known);
  return groups_.front().gathering(bytes);
}

Collective StateExchange::all_reduce(std::size_t group, Bytes bytes) const {
  if (auto known = measured(group, bytes, 2)) return *std::move(known);
  return groups_[group].best(bytes);
}

Collective StateExchange::reduce(Bytes gradients) const {
  const Training& training = cost_.scenario().training;
  if (training.zero == 0) return all_reduce(0, gradients);
  const AllReduceGroup& inside = groups_.front();
  const auto parameters = static_cast<double>(gradients.value / gradient_bytes(training).value);
  const Bytes weights{std::llround(parameters * gathered_weight_bytes_)};
  if (training.zero == 1 && groups_.size() == 1) {
    if (auto known = measured(0, gradients, 2)) return *std::move(known);
    return inside.sharded(gradients, weights);
  }
  Collective all = gathering(gradients);  // a scatter takes as long
  all.bytes = gradients;
  if (groups_.size() > 1) append(all, all_reduce(1, {gradients.value / static_cast<std::int64_t>(inside.members())}));
  if (training.zero == 1) append(all, gathering(weights));
  return all;
}

Collective StateExchange::gather(Bytes weights) const {
  return gathering(weights);
}

}  // namespace pipewright
