#include "core/cost/collectives.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/cost/link_load.hpp"
#include "core/plan/plan.hpp"

namespace pipewright::core {
namespace {

void add_ring(LinkLoad& load, const std::vector<DeviceId>& members) {
  for (std::size_t i = 0; i < members.size(); ++i)
    load.add(members[i], members[(i + 1) % members.size()], 1.0);
}

// Parent of `rank` in the in-order binary tree over 0..n-1 with root 0: the lowest set bit moves up one place.
// n = 8: 0 <- 4 <- {2, 6} <- {1, 3}, {5, 7}. Odd ranks are the leaves.
unsigned parent_in_tree(unsigned rank, unsigned n) {
  const unsigned bit = rank & (~rank + 1);
  const unsigned up = (rank ^ bit) | (bit << 1);
  return up < n ? up : rank ^ bit;
}

// The second tree is the first one mirrored (n even) or moved on by one (n odd), which swaps leaves and inner ranks.
void add_trees(LinkLoad& to_roots, LinkLoad& from_roots, const std::vector<DeviceId>& members) {
  const auto n = static_cast<unsigned>(members.size());
  for (unsigned rank = 1; rank < n; ++rank) {
    const unsigned up = parent_in_tree(rank, n);
    const auto second = [&](unsigned r) { return n % 2 == 0 ? n - 1 - r : (r + 1) % n; };
    for (const auto& [child, parent] : {std::pair{rank, up}, std::pair{second(rank), second(up)}}) {
      to_roots.add(members[child], members[parent], 0.5);
      from_roots.add(members[parent], members[child], 0.5);
    }
  }
}

// Members by node, or nothing when they do not form equal groups of more than one in several nodes.
DeviceGroups equal_groups(const std::vector<DeviceId>& members, int devices_per_node) {
  DeviceGroups groups;
  for (const DeviceId device : members) {
    if (groups.empty() || groups.back().front() / devices_per_node != device / devices_per_node) groups.emplace_back();
    groups.back().push_back(device);
  }
  if (groups.size() < 2 || groups.front().size() < 2) return {};
  for (const auto& group : groups)
    if (group.size() != groups.front().size()) return {};
  return groups;
}

// Rings inside the nodes, and one through the j-th members of all nodes for each j.
void add_levels(LinkLoad& inside, LinkLoad& between, const DeviceGroups& nodes) {
  for (const auto& node : nodes)
    add_ring(inside, node);
  for (std::size_t j = 0; j < nodes.front().size(); ++j) {
    std::vector<DeviceId> ring_between;
    for (const auto& node : nodes)
      ring_between.push_back(node[j]);
    add_ring(between, ring_between);
  }
}

Collective priced(const std::vector<CollectivePhase>& phases, Bytes bytes) {
  Collective collective;
  collective.bytes = bytes;
  if (bytes.value == 0) return collective;
  collective.phases = phases;
  for (CollectivePhase& phase : collective.phases) {
    phase.bytes *= static_cast<double>(bytes.value);
    phase.time = phase.latency;
    if (phase.rate.value > 0) phase.time = checked_sum(phase.time, transfer_time(phase.bytes, phase.rate));
    collective.time = checked_sum(collective.time, phase.time);
  }
  return collective;
}

// The same sum without the copy of the links.
Time time_alone(const std::vector<CollectivePhase>& phases, Bytes bytes) {
  Time sum;
  for (const CollectivePhase& phase : phases) {
    sum = checked_sum(sum, phase.latency);
    if (phase.rate.value > 0)
      sum = checked_sum(sum, transfer_time(phase.bytes * static_cast<double>(bytes.value), phase.rate));
  }
  return sum;
}

}  // namespace

AllReduceGroup::AllReduceGroup(std::vector<DeviceId> members, const Topology& topology, int devices_per_node,
                               const Cluster* cluster)
    : count_(members.size()) {
  DeviceGroups groups(1);
  groups.front() = std::move(members);
  build(groups, topology, devices_per_node, cluster);
}

AllReduceGroup AllReduceGroup::at_once(DeviceGroups groups, const Topology& topology, int devices_per_node,
                                       const Cluster* cluster) {
  AllReduceGroup all(groups.front().size());
  all.build(groups, topology, devices_per_node, cluster);
  return all;
}

void AllReduceGroup::build(DeviceGroups& groups, const Topology& topology, int devices_per_node,
                           const Cluster* cluster) {
  if (count_ < 2) return;
  LinkLoad ring(topology), to_roots(topology), from_roots(topology);
  for (std::vector<DeviceId>& members : groups) {
    std::sort(members.begin(), members.end());
    PP_CHECK(members.size() == count_ && std::adjacent_find(members.begin(), members.end()) == members.end());
    add_ring(ring, members);
    add_trees(to_roots, from_roots, members);
  }
  const int n = static_cast<int>(count_);
  ring_ = {ring.phase(2.0 * (n - 1) / n, 2 * (n - 1))};
  const int depth = std::bit_width(static_cast<unsigned>(n - 1));  // ceil(log2 n)
  tree_ = {to_roots.phase(1.0, depth), from_roots.phase(1.0, depth)};
  if (cluster && cluster->device.collectives) add_ways(*cluster, groups, topology);
  std::vector<DeviceGroups> by_node;
  for (const std::vector<DeviceId>& members : groups)
    by_node.push_back(equal_groups(members, devices_per_node));
  const auto alike = [&](const auto& nodes) { return !nodes.empty() && nodes.size() == by_node.front().size(); };
  if (!std::all_of(by_node.begin(), by_node.end(), alike)) return;
  LinkLoad inside(topology), between(topology);
  for (const auto& nodes : by_node)
    add_levels(inside, between, nodes);
  const int p = static_cast<int>(by_node.front().size()), g = static_cast<int>(by_node.front().front().size());
  hierarchical_ = true;
  const CollectivePhase half = inside.phase(static_cast<double>(g - 1) / g, g - 1);
  hierarchy_ = {half, between.phase(2.0 * (p - 1) / p / g, 2 * (p - 1)), half};
  gather_hierarchy_ = {half, between.phase(1.0 * (p - 1) / p / g, p - 1)};
}

namespace {

// Rings at once, one through every NIC: ring j enters each node at its j-th member, and leaves it from the one before.
void add_rails(LinkLoad& load, const DeviceGroups& nodes) {
  const std::size_t g = nodes.front().size();
  for (std::size_t j = 0; j < g; ++j)
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      const auto& here = nodes[node];
      for (std::size_t i = 0; i + 1 < g; ++i)
        load.add(here[(j + i) % g], here[(j + i + 1) % g], 1.0 / static_cast<double>(g));
      load.add(here[(j + g - 1) % g], nodes[(node + 1) % nodes.size()][j], 1.0 / static_cast<double>(g));
    }
}

// Members by node where all nodes have as many.
DeviceGroups by_node(const std::vector<DeviceId>& members, int devices_per_node) {
  DeviceGroups nodes;
  for (const DeviceId device : members) {
    if (nodes.empty() || nodes.back().front() / devices_per_node != device / devices_per_node) nodes.emplace_back();
    nodes.back().push_back(device);
  }
  for (const auto& node : nodes)
    if (node.size() != nodes.front().size()) return {};
  return nodes;
}

}  // namespace

void AllReduceGroup::add_ways(const Cluster& cluster, const DeviceGroups& groups, const Topology& topology) {
  const CollectiveCurve& curve = *cluster.device.collectives;
  const auto nodes = by_node(groups.front(), cluster.devices_per_node);
  const bool one_node = nodes.size() == 1,
             switched = cluster.links.kind == LinkKind::Nvswitch && cluster.links.peer_access;
  if (nodes.empty() || (one_node && !switched)) return;
  if (!one_node && (!cluster.network || cluster.network->ideal)) return;
  const int n = static_cast<int>(count_), p = static_cast<int>(nodes.size()), g = n / p;
  LinkLoad load(topology);
  for (const std::vector<DeviceId>& members : groups) {
    const auto here = by_node(members, cluster.devices_per_node);
    if (here.size() != nodes.size()) return;  // groups that lie differently: as rings of the first form
    one_node ? add_ring(load, members) : add_rails(load, here);
  }
  rails_ = {load.phase(2.0 * (n - 1) / n, 0)};
  const double nominal = switched ? cluster.links.bandwidth.value : 0, most = rails_.front().rate.value;
  const auto add = [&](std::vector<Way>& ways, const std::vector<CollectiveWay>& found, double unit) {
    for (const CollectiveWay& way : found)
      ways.push_back({Time{std::llround(way.start * 1e3)}, way.rate * unit});
  };
  if (one_node) {
    add(ways_, ways_inside(curve, CollectiveKind::AllReduce, n), nominal);
    add(gather_ways_, ways_inside(curve, CollectiveKind::AllGather, n), nominal);
    return;
  }
  const Network& network = *cluster.network;
  const int rails = std::min(g, network.per == NicPer::Device ? cluster.devices_per_node : 1);
  const NodeSpan span{n,
                      p,
                      nominal,
                      rails,
                      std::min(rails * network.bandwidth.value, most) * network.share,
                      static_cast<double>(network.latency.value) * 1e-3,
                      std::pow(p, network.contention)};
  add(ways_, ways_between(curve, CollectiveKind::AllReduce, span), 1);
  add(gather_ways_, ways_between(curve, CollectiveKind::AllGather, span), 1);
  for (Way& way : ways_)
    way.rate = std::min(way.rate, most);
}

namespace {

// The way of the least time, and that time.
std::pair<const AllReduceGroup::Way*, Time> fastest(const std::vector<AllReduceGroup::Way>& ways, double bytes) {
  std::pair<const AllReduceGroup::Way*, Time> best{nullptr, kNever};
  for (const AllReduceGroup::Way& way : ways)
    if (const Time time = checked_sum(way.start, transfer_time(bytes, Bandwidth{way.rate})); time < best.second)
      best = {&way, time};
  return best;
}

}  // namespace

CollectivePhase AllReduceGroup::least_way(const std::vector<Way>& ways, double bytes) const {
  CollectivePhase phase = rails_.front();
  phase.bytes = bytes;
  const auto [way, time] = fastest(ways, bytes);
  phase.time = time;
  if (way != nullptr) phase.latency = way->start, phase.rate = Bandwidth{way->rate};
  return phase;
}

double AllReduceGroup::passed(Bytes bytes) const {
  return static_cast<double>(count_ - 1) / static_cast<double>(count_) * static_cast<double>(bytes.value);
}

Collective AllReduceGroup::by_least_way(Bytes bytes) const {
  if (bytes.value == 0) return {};
  CollectivePhase phase = least_way(ways_, 2 * passed(bytes));
  return {bytes, phase.time, {std::move(phase)}};
}

void AllReduceGroup::keep_links(const Fold& fold) {
  for (auto* algorithm : {&ring_, &tree_, &hierarchy_, &gather_hierarchy_, &rails_})
    for (CollectivePhase& phase : *algorithm) {
      std::vector<std::pair<std::int32_t, double>> kept;
      for (const auto& [link, weight] : phase.links)
        if (const std::int32_t now = fold.kept_link(link); now >= 0) kept.emplace_back(now, weight);
      phase.links = std::move(kept);
    }
}

void AllReduceGroup::keep_no_links() {
  for (auto* algorithm : {&ring_, &tree_, &hierarchy_, &gather_hierarchy_, &rails_})
    for (CollectivePhase& phase : *algorithm)
      phase.links.clear();
}

Collective AllReduceGroup::price(AllReduce algorithm, Bytes bytes) const {
  PP_CHECK(algorithm != AllReduce::Hierarchical || hierarchical_ || count_ < 2);
  if (!ways_.empty()) return by_least_way(bytes);
  switch (algorithm) {
    case AllReduce::Ring: return priced(ring_, bytes);
    case AllReduce::Tree: return priced(tree_, bytes);
    case AllReduce::Hierarchical: return priced(hierarchy_, bytes);
  }
  return {};
}

Time AllReduceGroup::gather(Bytes bytes) const {
  if (count_ < 2 || bytes.value == 0) return {};
  if (gather_ways_.empty()) {
    const Time ring{(time_alone(ring_, bytes).value + 1) / 2};
    return hierarchical_ ? std::min(ring, time_alone(gather_hierarchy_, bytes)) : ring;
  }
  return fastest(gather_ways_, passed(bytes)).second;
}

Collective AllReduceGroup::gathering(Bytes bytes) const {
  if (count_ < 2 || bytes.value == 0) return {};
  CollectivePhase phase;
  if (gather_ways_.empty()) {
    phase = ring_.front();  // half the hops, and half the bytes, of an all-reduce
    phase.bytes *= static_cast<double>(bytes.value) / 2;
    phase.latency = Time{phase.latency.value / 2};
    phase.time = phase.latency;
    if (phase.rate.value > 0) phase.time = checked_sum(phase.time, transfer_time(phase.bytes, phase.rate));
    if (hierarchical_ && time_alone(gather_hierarchy_, bytes) < phase.time) return priced(gather_hierarchy_, bytes);
  } else {
    phase = least_way(gather_ways_, passed(bytes));
  }
  return {bytes, phase.time, {std::move(phase)}};
}

Collective AllReduceGroup::best(Bytes bytes) const {
  if (!ways_.empty()) return by_least_way(bytes);
  AllReduce best = AllReduce::Ring;
  Time shortest = time_alone(ring_, bytes);
  const auto consider = [&](AllReduce algorithm, const std::vector<CollectivePhase>& phases) {
    const Time time = time_alone(phases, bytes);
    if (time < shortest) shortest = time, best = algorithm;
  };
  consider(AllReduce::Tree, tree_);
  if (hierarchical_) consider(AllReduce::Hierarchical, hierarchy_);
  return price(best, bytes);
}

std::vector<DeviceId> members(const Plan& plan, VirtualStageId v) {
  std::vector<DeviceId> devices;
  for (const WorkerId worker : holders(plan.seating(), v))
    devices.push_back(plan.device[static_cast<std::size_t>(worker)]);
  return devices;
}

Collective all_reduce(AllReduce algorithm, const std::vector<DeviceId>& members, Bytes bytes, const Topology& topology,
                      int devices_per_node) {
  return AllReduceGroup(members, topology, devices_per_node).price(algorithm, bytes);
}

}  // namespace pipewright::core
