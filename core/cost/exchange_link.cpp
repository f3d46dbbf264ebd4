#include "core/cost/exchange_link.hpp"

#include <algorithm>

#include "core/cost/collectives.hpp"
#include "core/cost/link_load.hpp"

namespace pipewright::core {

ExchangeLink slower(const ExchangeLink& a, const ExchangeLink& b) {
  return {std::max(a.latency, b.latency), a.rate == 0 ? b.rate : b.rate == 0 ? a.rate : std::min(a.rate, b.rate)};
}

ExchangeLink exchange_link(const std::vector<std::vector<DeviceId>>& groups, ExchangeTo to, const Topology& topology,
                           const Cluster& cluster) {
  LinkLoad load(topology);
  bool between = false;
  const auto node = [&](DeviceId each) { return each / cluster.devices_per_node; };
  for (const std::vector<DeviceId>& group : groups) {
    const std::size_t n = group.size(), far = to == ExchangeTo::All ? n - 1 : 1;
    for (std::size_t i = 0; i < n; ++i) {
      between = between || node(group[i]) != node(group.front());
      for (std::size_t other = 1; other <= far; ++other)
        load.add(group[i], group[(i + other) % n], 1.0 / static_cast<double>(far));
    }
  }
  const CollectivePhase phase = load.phase(1.0, 1);
  ExchangeLink link{static_cast<double>(phase.latency.value), phase.rate.value};
  if (between && cluster.network && !cluster.network->ideal) link.rate *= cluster.network->share;
  const AllReduceGroup all = AllReduceGroup::at_once(groups, topology, cluster.devices_per_node, &cluster);
  ExchangeLink most;
  for (const AllReduceGroup::Way& way : all.gather_ways()) {
    const double hop = static_cast<double>(way.start.value) / static_cast<double>(all.members() - 1);
    most = {most.rate == 0 ? hop : std::min(most.latency, hop), std::max(most.rate, way.rate)};
  }
  return slower(link, most);
}

}  // namespace pipewright::core
