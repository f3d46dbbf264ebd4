#include "core/cluster/topology.hpp"

#include <cmath>

#include "core/folds.hpp"

namespace pipewright::core {
namespace {

void require_rate(const Cluster& cluster, const char* key, Bandwidth bandwidth) {
  if (bandwidth.value > 0 && std::isfinite(bandwidth.value)) return;
  throw InputError(cluster.place, std::string("cluster.") + key,
                   "must be larger than 0; write e.g. \"25 GB/s\", or `ideal` where transfers shall take no time");
}

void require_sound(const Cluster& cluster) {
  const auto refuse = [&](const char* key, std::string text) { throw InputError(cluster.place, key, std::move(text)); };
  if (cluster.nodes < 1) refuse("cluster.nodes", std::to_string(cluster.nodes) + "; must be at least 1");
  if (cluster.devices_per_node < 1)
    refuse("cluster.devices_per_node", std::to_string(cluster.devices_per_node) + "; must be at least 1");
  if (std::int64_t{cluster.nodes} * cluster.devices_per_node > kMostDevices)
    refuse("cluster", std::to_string(std::int64_t{cluster.nodes} * cluster.devices_per_node) + " devices; at most " +
                          std::to_string(kMostDevices) + " are supported");
  if (cluster.nodes > 1 && !cluster.network)
    refuse("cluster", std::to_string(cluster.nodes) + " nodes but no network; add `network:`, or use one node");
  const bool used = cluster.devices_per_node > 1 || (cluster.links.kind == LinkKind::Pcie && cluster.nodes > 1);
  if (used && cluster.links.kind != LinkKind::Ideal) {
    require_rate(cluster, "links.bandwidth", cluster.links.bandwidth);
    if (cluster.links.host_bandwidth) require_rate(cluster, "links.host_bandwidth", *cluster.links.host_bandwidth);
    if (cluster.links.kind == LinkKind::Mesh && !cluster.links.peer_access)
      refuse("cluster.links",
             "a mesh joins its devices directly, so `peer_access: false` has no meaning; use kind: pcie");
    const std::int64_t pairs = std::int64_t{cluster.devices_per_node} * (cluster.devices_per_node - 1);
    if (cluster.links.kind == LinkKind::Mesh && pairs > kMostMeshLinks / cluster.nodes)
      refuse("cluster.links", "a mesh has a link for every ordered pair of devices, here " + std::to_string(pairs) +
                                  " in each of " + std::to_string(cluster.nodes) + " nodes; at most " +
                                  std::to_string(kMostMeshLinks) + " are supported, use kind: nvswitch");
  }
  if (cluster.network && !cluster.network->ideal) {
    require_rate(cluster, "network.bandwidth", cluster.network->bandwidth);
    if (!(cluster.network->oversubscription >= 1) || !std::isfinite(cluster.network->oversubscription))
      refuse("cluster.network.oversubscription", "must be at least 1 (1: none)");
    if (cluster.network->nodes_per_switch < 1) refuse("cluster.network.nodes_per_switch", "must be at least 1");
    if (cluster.network->rails && cluster.network->per == NicPer::Node)
      refuse("cluster.network.rails", "a rail joins the NICs of one place of many nodes; write per: device");
  }
}

std::string of_node(int node) {
  return "node " + std::to_string(node);
}

std::string of_device(int node, int place) {
  return of_node(node) + " device " + std::to_string(place);
}

}  // namespace

Topology::Topology(const Cluster& cluster) : cluster_(cluster) {
  require_sound(cluster_);
  devices_ = cluster_.devices();
  nodes_ = cluster_.nodes;
  const NodeLinks& links = cluster_.links;
  const int n = cluster_.devices_per_node;
  if (nodes_ > 1 && !cluster_.network->ideal) {
    nics_per_node_ = cluster_.network->per == NicPer::Node ? 1 : n;
    per_nic_ = cluster_.network->duplex == Duplex::Half ? 1 : 2;
  }
  const bool half = links.duplex == Duplex::Half;
  const bool way_to_nic = links.kind == LinkKind::Pcie && nics_per_node_ > 0;
  const bool wired = links.kind != LinkKind::Ideal && (n > 1 || way_to_nic);
  if (wired && links.kind == LinkKind::Mesh) {
    pairs_ = n * (n - 1) / (half ? 2 : 1);
  } else if (wired) {
    ports_per_device_ = half ? 1 : 2;
    host_memory_ = !links.peer_access && links.host_bandwidth && n > 1;
  }
  links_in_node_ = pairs_ + n * ports_per_device_ + (host_memory_ ? 1 : 0);
  if (nics_per_node_ == 0) return;
  const Network& network = *cluster_.network;
  rails_ = network.rails && n > 1;
  const bool crossed = rails_ && !passes_on();  // also among the nodes of one leaf
  if (network.oversubscription == 1.0 || (network.nodes_per_switch >= nodes_ && !crossed)) return;
  leaves_ = (nodes_ + network.nodes_per_switch - 1) / network.nodes_per_switch * (rails_ ? n : 1);
  per_leaf_ = per_nic_;
}

int Topology::second(LinkPlace::Kind kind) const {
  return kind == LinkPlace::Kind::Down && per_leaf_ == 2 ? 1 : 0;
}

int Topology::port(LinkPlace::Kind kind, DeviceId device) const {
  const int n = cluster_.devices_per_node, second = kind == LinkPlace::Kind::PortIn && ports_per_device_ == 2 ? 1 : 0;
  return device / n * per_node() + device % n * ports_per_device_ + second;
}

int Topology::nic(LinkPlace::Kind kind, DeviceId device) const {
  const int n = cluster_.devices_per_node, second = kind == LinkPlace::Kind::NicIn && per_nic_ == 2 ? 1 : 0;
  return device / n * per_node() + links_in_node_ + (nics_per_node_ == 1 ? 0 : device % n) * per_nic_ + second;
}

LinkPlace Topology::place(int link) const {
  using Kind = LinkPlace::Kind;
  if (const int leaf = link - nodes_ * per_node(); leaf >= 0)
    return {leaf % per_leaf_ == 0 ? Kind::Up : Kind::Down, leaf / per_leaf_, 0};
  const int node = link / per_node(), at = link % per_node();
  if (const int on_nic = at - links_in_node_; on_nic >= 0)
    return {on_nic % per_nic_ == 0 ? Kind::NicOut : Kind::NicIn, node, on_nic / per_nic_};
  if (at < pairs_) return {Kind::Pair, node, at};
  if (host_memory_ && at + 1 == links_in_node_) return {Kind::HostMemory, node, 0};
  return {at % ports_per_device_ == 0 ? Kind::PortOut : Kind::PortIn, node, at / ports_per_device_};
}

Bandwidth Topology::bandwidth(int link) const {
  const NodeLinks& links = cluster_.links;
  switch (place(link).kind) {
    case LinkPlace::Kind::PortOut:
    case LinkPlace::Kind::PortIn:
    case LinkPlace::Kind::Pair: return links.bandwidth;
    case LinkPlace::Kind::HostMemory: return Bandwidth{links.host_bandwidth->value / 2};
    case LinkPlace::Kind::NicOut:
    case LinkPlace::Kind::NicIn: return cluster_.network->bandwidth;
    case LinkPlace::Kind::Up:
    case LinkPlace::Kind::Down: break;
  }
  return uplink_bandwidth();
}

Bandwidth Topology::uplink_bandwidth() const {
  const Network& network = *cluster_.network;
  return Bandwidth{static_cast<double>(network.nodes_per_switch) * (rails_ ? 1 : nics_per_node_) *
                   network.bandwidth.value / network.oversubscription};
}

std::string Topology::name(const LinkPlace& place) const {
  using Kind = LinkPlace::Kind;
  const bool half = cluster_.links.duplex == Duplex::Half, half_nic = per_nic_ == 1;
  const std::string device = of_device(place.owner, place.place);
  const std::string nic = nics_per_node_ == 1 && cluster_.network->per == NicPer::Node ? of_node(place.owner) : device;
  const int n = cluster_.devices_per_node;
  const std::string leaf = rails_
                               ? "leaf " + std::to_string(place.owner / n) + " rail " + std::to_string(place.owner % n)
                               : "leaf " + std::to_string(place.owner);
  switch (place.kind) {
    case Kind::PortOut: return device + (half ? " port" : " out");
    case Kind::PortIn: return device + " in";
    case Kind::HostMemory: return of_node(place.owner) + " host memory";
    case Kind::NicOut: return nic + (half_nic ? " NIC" : " NIC out");
    case Kind::NicIn: return nic + " NIC in";
    case Kind::Up: return leaf + (half_nic ? " uplink" : " up");
    case Kind::Down: return leaf + " down";
    case Kind::Pair: break;
  }
  int a = 0, b = place.place;
  for (; b >= (half ? n - 1 - a : n - 1); ++a)
    b -= half ? n - 1 - a : n - 1;
  b += half ? a + 1 : b >= a ? 1 : 0;
  return of_device(place.owner, a) + (half ? " - " : " to ") + std::to_string(b);
}

Link Topology::link(int link) const {
  return {name(place(link)), bandwidth(link)};
}

std::vector<Link> Topology::links() const {
  return mapped<Link>(counted_to(link_count()), [&](int i) { return link(i); });
}

Topology::Way Topology::way(DeviceId from, DeviceId to) const {
  if (from == to) return Way::None;
  if (from / cluster_.devices_per_node == to / cluster_.devices_per_node) return Way::InsideNode;
  const DeviceId by = sender(from, to);
  const bool spine = leaves_ > 0 && leaf(by) != leaf(to);
  if (by != from) return spine ? Way::ByNeighbourAndSpine : Way::ByNeighbour;
  return spine ? Way::BetweenLeaves : Way::BetweenNodes;
}

DeviceId Topology::sender(DeviceId from, DeviceId to) const {
  const int n = cluster_.devices_per_node;
  return rails_ && passes_on() ? DeviceId{from / n * n + to % n} : from;
}

Route Topology::route(DeviceId from, DeviceId to) const {
  Route result;
  route(from, to, result);
  return result;
}

void Topology::route(DeviceId from, DeviceId to, Route& result) const {
  PP_CHECK(from >= 0 && from < devices_ && to >= 0 && to < devices_);
  result.links.clear();
  result.bandwidth = Bandwidth{0};
  result.latency = {};
  switch (way(from, to)) {
    case Way::None: return;
    case Way::InsideNode: return inside_node(from, to, result);
    case Way::BetweenNodes:
    case Way::BetweenLeaves:
    case Way::ByNeighbour:
    case Way::ByNeighbourAndSpine: return between_nodes(from, to, result);
  }
}

void Topology::inside_node(DeviceId from, DeviceId to, Route& route) const {
  const NodeLinks& links = cluster_.links;
  if (links.kind == LinkKind::Ideal) return;
  route.latency = links.latency;
  route.bandwidth = links.bandwidth;
  const int n = cluster_.devices_per_node;
  if (links.kind == LinkKind::Mesh) {
    const int a = from % n, b = to % n;
    const int low = std::min(a, b), high = std::max(a, b);
    const int pair = links.duplex == Duplex::Half ? low * n - low * (low + 1) / 2 + (high - low - 1)
                                                  : a * (n - 1) + (b < a ? b : b - 1);
    route.links = {from / n * per_node() + pair};
    return;
  }
  route.links.push_back(port(LinkPlace::Kind::PortOut, from));
  if (!links.peer_access) {
    double half = links.bandwidth.value;  // rate of each of the two halves: both ports have the same bandwidth
    if (host_memory_) {
      route.links.push_back(from / n * per_node() + links_in_node_ - 1);
      half = std::min(half, links.host_bandwidth->value);
    }
    route.bandwidth = Bandwidth{half / 2};
  }
  route.links.push_back(port(LinkPlace::Kind::PortIn, to));
}

void Topology::between_nodes(DeviceId from, DeviceId to, Route& route) const {
  if (nics_per_node_ == 0) return;
  const Network& network = *cluster_.network;
  const bool through_ports = cluster_.links.kind == LinkKind::Pcie;
  route.latency = network.latency;
  route.bandwidth = network.bandwidth;
  if (through_ports) {
    route.links.push_back(port(LinkPlace::Kind::PortOut, from));
    route.bandwidth = std::min(route.bandwidth, cluster_.links.bandwidth);
  }
  const DeviceId by = sender(from, to);
  if (by != from && cluster_.links.kind != LinkKind::Ideal) {
    route.links = {port(LinkPlace::Kind::PortOut, from), port(LinkPlace::Kind::PortIn, by)};
    route.bandwidth = std::min(route.bandwidth, cluster_.links.bandwidth);
  }
  route.links.push_back(nic(LinkPlace::Kind::NicOut, by));
  if (leaves_ > 0 && leaf(by) != leaf(to)) {
    route.links.push_back(uplink(LinkPlace::Kind::Up, leaf(by)));
    route.links.push_back(uplink(LinkPlace::Kind::Down, leaf(to)));
    route.bandwidth = std::min(route.bandwidth, uplink_bandwidth());
  }
  route.links.push_back(nic(LinkPlace::Kind::NicIn, to));
  if (through_ports) route.links.push_back(port(LinkPlace::Kind::PortIn, to));
}

}  // namespace pipewright::core
