#include "core/cost/exchange_link.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/cluster/collective_curves.hpp"
#include "core/cost/collectives.hpp"
#include "core/cost/link_load.hpp"

namespace pipewright::core {

ExchangeLink slower(const ExchangeLink& a, const ExchangeLink& b) {
  ExchangeLink both = a.rate == 0 ? b : a;
  both.latency = std::max(a.latency, b.latency);
  if (a.rate == 0 || b.rate == 0) return both;
  both.rate = std::min(a.rate, b.rate);
  if (b.ways.empty()) both.ways.clear();
  return both;
}

namespace {

// Of groups that meet on no node, or leaf switch, and lie alike there one is as slow as all of them: the first is left.
// Nodes of two: {0, 2}, {1, 3}, {4, 6}, {5, 7} are {0, 2}, {1, 3}.  tests/core/collectives_test.cpp "groups that lie alike"
DeviceGroups without_repeats(const DeviceGroups& groups, int period) {
  std::map<int, int> joined;  // an area, and one before it that the same groups reach
  const auto first_of = [&](int area) {
    while (joined.at(area) != area)
      area = joined.at(area);
    return area;
  };
  for (const std::vector<DeviceId>& group : groups)
    for (const DeviceId device : group) {
      joined.try_emplace(device / period, device / period);
      const auto [low, high] = std::minmax({first_of(group.front() / period), first_of(device / period)});
      joined[high] = low;
    }
  std::map<int, DeviceGroups> by_area;
  std::vector<int> order;
  for (const std::vector<DeviceId>& group : groups) {
    const int area = first_of(group.front() / period);
    if (!by_area.contains(area)) order.push_back(area);
    std::vector<DeviceId>& moved = by_area[area].emplace_back(group);
    for (DeviceId& device : moved)
      device -= area * period;
  }
  DeviceGroups left;
  std::set<DeviceGroups> known;
  for (const int area : order) {
    if (!known.insert(by_area[area]).second) continue;
    for (std::vector<DeviceId>& group : by_area[area]) {
      for (DeviceId& device : group)
        device += area * period;
      left.push_back(std::move(group));
    }
  }
  return left;
}

}  // namespace

ExchangeLink exchange_link(const DeviceGroups& all_groups, ExchangeTo to, const Topology& topology,
                           const Cluster& cluster) {
  const DeviceGroups groups = without_repeats(all_groups, topology.period());
  LinkLoad load(topology);
  bool between = false;
  const auto node = [&](DeviceId each) { return each / cluster.devices_per_node; };
  for (const std::vector<DeviceId>& group : groups) {
    const std::size_t n = group.size(), far = to == ExchangeTo::Next ? 1 : n - 1;
    for (std::size_t i = 0; i < n; ++i) {
      between = between || node(group[i]) != node(group.front());
      for (std::size_t other = 1; other <= far; ++other)
        load.add(group[i], group[(i + other) % n], 1.0 / static_cast<double>(far));
    }
  }
  const CollectivePhase phase = load.phase(1.0, 1);
  ExchangeLink link{static_cast<double>(phase.latency.value), phase.rate.value, {}};
  const std::optional<CollectiveCurve>& curve = cluster.device.collectives;
  const int members = static_cast<int>(groups.front().size());
  const bool switched =
      !between && members > 1 && curve && cluster.links.kind == LinkKind::Nvswitch && cluster.links.peer_access;
  if (switched && to == ExchangeTo::HandedOn && curve->handed_on) {
    link.rate *= *curve->handed_on;
    return link;
  }
  if (switched && to != ExchangeTo::Next && !curve->all_to_all.empty()) {
    for (const CollectiveWay& way : ways_inside(*curve, CollectiveKind::AllToAll, members))
      link.ways.push_back({way.start * 1e3, way.rate * cluster.links.bandwidth.value});
    return link;
  }
  if (between && cluster.network && !cluster.network->ideal) link.rate *= cluster.network->share;
  const AllReduceGroup all = AllReduceGroup::at_once(groups, topology, cluster.devices_per_node, &cluster);
  ExchangeLink most;
  for (const AllReduceGroup::Way& way : all.gather_ways()) {
    const double hop = static_cast<double>(way.start.value) / static_cast<double>(all.members() - 1);
    most = {most.rate == 0 ? hop : std::min(most.latency, hop), std::max(most.rate, way.rate), {}};
  }
  return slower(link, most);
}

}  // namespace pipewright::core
