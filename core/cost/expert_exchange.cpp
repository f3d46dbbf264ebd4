#include "core/cost/expert_exchange.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/plan/mesh.hpp"

namespace pipewright::core {
namespace {

constexpr std::size_t kMostLookedAt = 2048;  // of a stage that are looked at: others lie like them

}  // namespace

double nodes_of_token(double experts, double active, int nodes, int most) {
  if (nodes < 2) return 1;
  const double here = experts / nodes, all = here * most;
  // C(all - here, k) / C(all, k), the experts drawn one after the other.
  double none = 1;
  for (int i = 0; i < static_cast<int>(active); ++i)
    none *= std::max(0.0, all - here - i) / std::max(1.0, all - i);
  return most * (1 - none);
}

double expert_workspace(const ExpertTokens& layer, const PlanRequest& plan, double tokens, double value_bytes) {
  const TensorParallel split = plan.split();
  if (!split.sends_tokens()) return 0;
  const double own = tokens / split.degree * layer.features * value_bytes;
  if (plan.expert_exchange.value == ExpertExchange::AllGather)
    return 2 * own * static_cast<double>(split.expert_devices());
  return 2 * own * layer.active * split.expert_split() * plan.expert_load(split);
}

TokenExchange::TokenExchange(const Scenario& scenario, const Topology& topology)
    : kind_(scenario.plan.expert_exchange.value), load_(scenario.plan.expert_load(scenario.plan.split())) {
  const TensorParallel split = scenario.plan.split();
  if (!split.sends_tokens() || kind_ == ExpertExchange::Unpriced || kind_ == ExpertExchange::OnlySorted) return;
  std::vector<DeviceId> all =
      with_members(leads_of_first_stage(scenario.plan, scenario.cluster), static_cast<int>(split.degree));
  const auto together = static_cast<std::size_t>(split.expert_devices());
  if (all.empty() || all.size() % together != 0) return;  // likewise
  if (all.size() > kMostLookedAt) all.resize(std::max<std::size_t>(1, kMostLookedAt / together) * together);
  experts_ = split.experts, split_ = split.expert_split(), devices_ = split.expert_devices();
  const Cluster& cluster = scenario.cluster;
  const Mesh mesh(
      all,
      {{Axis::Part, split_}, {Axis::Expert, experts_}, {Axis::Copy, static_cast<std::int64_t>(all.size() / together)}});
  const DeviceGroups whole = mesh.along({Axis::Part, Axis::Expert}), across = mesh.along({Axis::Expert}),
                     sharing = split_ > 1 ? mesh.along({Axis::Part}) : DeviceGroups{};
  DeviceGroups inside, between;
  std::size_t most_nodes = 1;
  for (const std::vector<DeviceId>& group : whole) {
    std::map<int, std::vector<DeviceId>> by_node;
    for (const DeviceId device : group)
      by_node[device / cluster.devices_per_node].push_back(device);
    most_nodes = std::max(most_nodes, by_node.size());
    const bool alike = std::all_of(by_node.begin(), by_node.end(), [&](const auto& each) {
      return each.second.size() == by_node.begin()->second.size();
    });
    for (const auto& [node, devices] : by_node)
      if (devices.size() > 1) inside.push_back(devices);
    if (by_node.size() > 1 && alike)
      for (std::size_t place = 0; place < by_node.begin()->second.size(); ++place) {
        between.emplace_back();
        for (const auto& [node, devices] : by_node)
          between.back().push_back(devices[place]);
      }
  }
  nodes_ = static_cast<int>(most_nodes);
  most_nodes_ = nodes_;
  if (scenario.plan.expert_nodes)
    most_nodes_ = static_cast<int>(std::min<std::int64_t>(nodes_, scenario.plan.expert_nodes->value));
  const auto same_size = [](const DeviceGroups& groups) {
    return std::all_of(groups.begin(), groups.end(),
                       [&](const auto& each) { return each.size() == groups.front().size(); });
  };
  if (experts_ > 1) sent_ = exchange_link(across, ExchangeTo::All, topology, cluster);
  if (!inside.empty() && same_size(inside)) inside_ = exchange_link(inside, ExchangeTo::HandedOn, topology, cluster);
  if (!between.empty()) between_ = exchange_link(between, ExchangeTo::All, topology, cluster);
  const bool uneven = (between.empty() && nodes_ > 1) || (!inside.empty() && !same_size(inside));
  if (uneven && kind_ == ExpertExchange::PerNode) kind_ = ExpertExchange::AllToAll;
  const auto at_once = [&](DeviceGroups groups) {
    return AllReduceGroup::at_once(std::move(groups), topology, cluster.devices_per_node, &cluster);
  };
  if (kind_ == ExpertExchange::AllGather) whole_.push_back(at_once(whole));
  if (!sharing.empty()) sharing_.push_back(at_once(sharing));
}

double TokenExchange::gathered(const std::vector<AllReduceGroup>& groups, double all) const {
  Time longest;
  for (const AllReduceGroup& group : groups)
    longest = std::max(longest, group.gather(Bytes{std::llround(all)}));
  return static_cast<double>(longest.value);
}

double TokenExchange::bytes(const ExpertTokens& layer, double tokens, double row) const {
  if (!any()) return 0;
  switch (kind_) {
    case ExpertExchange::AllGather: return tokens * row * static_cast<double>(devices_ - 1);
    case ExpertExchange::AllToAll: return tokens * layer.active * row * (experts_ - 1) / experts_;
    case ExpertExchange::PerNode:
    case ExpertExchange::Unpriced:
    case ExpertExchange::OnlySorted: break;
  }
  const double nodes = nodes_of_token(layer.experts, layer.active, nodes_, most_nodes_);
  return tokens * row * nodes * (nodes_ - 1) / nodes_;
}

double TokenExchange::time(const ExpertTokens& layer, double tokens, double row) const {
  if (!any()) return 0;
  // The fullest device gets that many times the mean.
  const double share = load_ * tokens;
  if (kind_ == ExpertExchange::AllGather) return gathered(whole_, tokens * row * static_cast<double>(devices_));
  const double moved = bytes(layer, share, row);
  const double sharing = split_ > 1 ? gathered(sharing_, share * layer.active * row * split_) : 0;
  if (kind_ == ExpertExchange::AllToAll) return (experts_ > 1 ? sent_.time(moved) : 0) + sharing;
  const int here = static_cast<int>(devices_) / nodes_;  // devices of the group on a node
  const double ends =
      nodes_of_token(layer.experts, layer.active, experts_, std::max(1, most_nodes_ * experts_ / nodes_));
  const double handed_on = share * ends * row * (here - 1) / here;
  return std::max(nodes_ > 1 ? between_.time(moved) : 0, here > 1 ? inside_.time(handed_on) : 0) + sharing;
}

}  // namespace pipewright::core
