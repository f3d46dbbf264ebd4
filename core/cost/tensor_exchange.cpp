#include "core/cost/tensor_exchange.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "core/cost/collectives.hpp"

namespace pipewright::core {

std::int64_t different_blocks(const Cluster& cluster, std::int64_t block) {
  const std::int64_t leaf =
      std::int64_t{cluster.devices_per_node} * (cluster.network ? cluster.network->nodes_per_switch : 1);
  return std::min(cluster.devices() / block, leaf / std::gcd(leaf, block));
}

double TensorExchange::Exchange::time(double bytes, TensorLinks links) const {
  const auto least = std::min_element(ways.begin(), ways.end(),
                                      [&](const Way& a, const Way& b) { return a.time(bytes) < b.time(bytes); });
  if (links == TensorLinks::Free) return times * least->latency;
  if (links == TensorLinks::Counted) return times * (least->latency + least->share * bytes * kPerByte);
  return times * least->time(bytes);
}

// Sequence parallelism exchanges by a reduce-scatter and an all-gather, which have ways of their own.
TensorExchange::Exchange TensorExchange::exchange(const Scenario& scenario, const AllReduceGroup& group) {
  const double n = static_cast<double>(group.members());
  if (group.ways().empty()) {
    const CollectivePhase ring = group.price(AllReduce::Ring, Bytes{1}).phases.front();
    return {1, {{static_cast<double>(ring.latency.value), ring.bytes, ring.rate.value}}};
  }
  const bool halves = scenario.plan.sequence_parallel.value;
  Exchange result{halves ? 2 : 1, {}};
  for (const AllReduceGroup::Way& way : halves ? group.gather_ways() : group.ways())
    result.ways.push_back({static_cast<double>(way.start.value), (halves ? 1 : 2) * (n - 1) / n, way.rate});
  return result;
}

TensorExchange::TensorExchange(const Scenario& scenario, const Topology& topology)
    : links_(scenario.plan.tensor_links.value) {
  const Cluster& cluster = scenario.cluster;
  const std::int64_t t = scenario.plan.tensor_parallel.value, devices = cluster.devices();
  if (t < 2 || t > devices) return;
  const auto add = [&](std::int64_t lead) {
    if (lead < 0 || lead + t > devices) return;  // the plan is refused elsewhere
    std::vector<DeviceId> members;
    for (std::int64_t member = 0; member < t; ++member)
      members.push_back(static_cast<DeviceId>(lead + member));
    Exchange found =
        exchange(scenario, AllReduceGroup(std::move(members), topology, cluster.devices_per_node, &cluster));
    if (std::find(rings_.begin(), rings_.end(), found) == rings_.end()) rings_.push_back(std::move(found));
  };
  if (const auto* leads = std::get_if<std::vector<std::int64_t>>(&scenario.plan.placement)) {
    for (const std::int64_t lead : *leads)
      add(lead);
    return;
  }
  for (std::int64_t group = 0; group < different_blocks(cluster, t); ++group)
    add(group * t);
}

double TensorExchange::time(double bytes, int count, double skew) const {
  double longest = 0;
  if (count > 0)
    for (const Exchange& ring : rings_)
      longest = std::max(longest, count * ring.time(bytes / count, links_));
  return longest > 0 ? longest + count * skew : 0;
}

}  // namespace pipewright::core
