#include "core/cluster/topology.hpp"

#include <algorithm>
#include <cmath>

namespace pipewright {
namespace {

void require_rate(const Cluster& cluster, const char* key, Bandwidth bandwidth) {
  if (bandwidth.value > 0 && std::isfinite(bandwidth.value)) return;
  throw InputError(cluster.place, std::string("cluster.") + key +
                                      ": must be larger than 0; write e.g. \"25 GB/s\", or " +
                                      "`ideal` where transfers shall take no time");
}

void require_sound(const Cluster& cluster) {
  const auto refuse = [&](const std::string& message) { throw InputError(cluster.place, message); };
  if (cluster.nodes < 1) refuse("cluster.nodes: " + std::to_string(cluster.nodes) + "; must be at least 1");
  if (cluster.devices_per_node < 1)
    refuse("cluster.devices_per_node: " + std::to_string(cluster.devices_per_node) + "; must be at least 1");
  if (std::int64_t{cluster.nodes} * cluster.devices_per_node > kMostDevices)
    refuse("cluster: " + std::to_string(std::int64_t{cluster.nodes} * cluster.devices_per_node) + " devices; at most " +
           std::to_string(kMostDevices) + " are supported");
  if (cluster.nodes > 1 && !cluster.network)
    refuse("cluster: " + std::to_string(cluster.nodes) + " nodes but no network; add `network:`, or use one node");
  const bool used = cluster.devices_per_node > 1 || (cluster.links.kind == LinkKind::Pcie && cluster.nodes > 1);
  if (used && cluster.links.kind != LinkKind::Ideal) {
    require_rate(cluster, "links.bandwidth", cluster.links.bandwidth);
    if (cluster.links.host_bandwidth) require_rate(cluster, "links.host_bandwidth", *cluster.links.host_bandwidth);
    if (cluster.links.kind == LinkKind::Mesh && !cluster.links.peer_access)
      refuse(
          "cluster.links: a mesh joins its devices directly, so `peer_access: false` has no meaning; use kind: pcie");
    const std::int64_t pairs = std::int64_t{cluster.devices_per_node} * (cluster.devices_per_node - 1);
    if (cluster.links.kind == LinkKind::Mesh && pairs > kMostMeshLinks / cluster.nodes)
      refuse("cluster.links: a mesh has a link for every ordered pair of devices, here " + std::to_string(pairs) +
             " in each of " + std::to_string(cluster.nodes) + " nodes; at most " + std::to_string(kMostMeshLinks) +
             " are supported, use kind: nvswitch");
  }
  if (cluster.network && !cluster.network->ideal) {
    require_rate(cluster, "network.bandwidth", cluster.network->bandwidth);
    if (!(cluster.network->oversubscription >= 1) || !std::isfinite(cluster.network->oversubscription))
      refuse("cluster.network.oversubscription: must be at least 1 (1: none)");
    if (cluster.network->nodes_per_switch < 1) refuse("cluster.network.nodes_per_switch: must be at least 1");
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
  if (cluster_.nodes > 1 && !cluster_.network->ideal)
    nics_per_node_ = cluster_.network->per == NicPer::Node ? 1 : cluster_.devices_per_node;
  for (int node = 0; node < cluster_.nodes; ++node) {
    add_node_links(node);
    if (nics_per_node_ > 0) add_nics(node);
  }
  if (nics_per_node_ > 0) add_leaves();
}

int Topology::new_link(const std::string& name, Bandwidth bandwidth) {
  links_.push_back({name, bandwidth});
  return static_cast<int>(links_.size()) - 1;
}

void Topology::add_node_links(int node) {
  const NodeLinks& links = cluster_.links;
  const int n = cluster_.devices_per_node;
  const bool half = links.duplex == Duplex::Half;
  const bool way_to_nic = links.kind == LinkKind::Pcie && nics_per_node_ > 0;
  if (links.kind == LinkKind::Ideal || (n == 1 && !way_to_nic)) return;
  if (links.kind == LinkKind::Mesh) {
    mesh_.push_back(static_cast<int>(links_.size()));
    for (int a = 0; a < n; ++a)
      for (int b = half ? a + 1 : 0; b < n; ++b)
        if (a != b) new_link(of_device(node, a) + (half ? " - " : " to ") + std::to_string(b), links.bandwidth);
    return;
  }
  for (int i = 0; i < n; ++i) {
    out_.push_back(new_link(of_device(node, i) + (half ? " port" : " out"), links.bandwidth));
    in_.push_back(half ? out_.back() : new_link(of_device(node, i) + " in", links.bandwidth));
  }
  if (!links.peer_access && links.host_bandwidth && n > 1)
    host_.push_back(new_link(of_node(node) + " host memory", Bandwidth{links.host_bandwidth->value / 2}));
}

void Topology::add_nics(int node) {
  const Network& network = *cluster_.network;
  for (int i = 0; i < nics_per_node_; ++i) {
    const std::string owner = network.per == NicPer::Node ? of_node(node) : of_device(node, i);
    const bool half = network.duplex == Duplex::Half;
    nic_out_.push_back(new_link(owner + (half ? " NIC" : " NIC out"), network.bandwidth));
    nic_in_.push_back(half ? nic_out_.back() : new_link(owner + " NIC in", network.bandwidth));
  }
}

void Topology::add_leaves() {
  const Network& network = *cluster_.network;
  if (network.oversubscription == 1.0 || network.nodes_per_switch >= cluster_.nodes) return;
  const Bandwidth capacity{static_cast<double>(network.nodes_per_switch) * nics_per_node_ * network.bandwidth.value /
                           network.oversubscription};
  const bool half = network.duplex == Duplex::Half;
  for (int first = 0; first < cluster_.nodes; first += network.nodes_per_switch) {
    const std::string leaf = "leaf " + std::to_string(first / network.nodes_per_switch);
    up_.push_back(new_link(leaf + (half ? " uplink" : " up"), capacity));
    down_.push_back(half ? up_.back() : new_link(leaf + " down", capacity));
  }
}

Route Topology::route(DeviceId from, DeviceId to) const {
  PP_CHECK(from >= 0 && from < devices_ && to >= 0 && to < devices_);
  Route route;
  if (from == to) return route;
  if (from / cluster_.devices_per_node == to / cluster_.devices_per_node)
    inside_node(from, to, route);
  else
    between_nodes(from, to, route);
  return route;
}

void Topology::inside_node(DeviceId from, DeviceId to, Route& route) const {
  const NodeLinks& links = cluster_.links;
  if (links.kind == LinkKind::Ideal) return;
  route.latency = links.latency;
  route.bandwidth = links.bandwidth;
  if (links.kind == LinkKind::Mesh) {
    const int n = cluster_.devices_per_node, a = from % n, b = to % n;
    const int low = std::min(a, b), high = std::max(a, b);
    const int pair = links.duplex == Duplex::Half ? low * n - low * (low + 1) / 2 + (high - low - 1)
                                                  : a * (n - 1) + (b < a ? b : b - 1);
    route.links = {mesh_[static_cast<std::size_t>(from / n)] + pair};
    return;
  }
  route.links.push_back(out_[static_cast<std::size_t>(from)]);
  if (!links.peer_access) {
    double half = links.bandwidth.value;  // rate of each of the two halves: both ports have the same bandwidth
    if (!host_.empty()) {
      route.links.push_back(host_[static_cast<std::size_t>(from / cluster_.devices_per_node)]);
      half = std::min(half, links.host_bandwidth->value);
    }
    route.bandwidth = Bandwidth{half / 2};
  }
  route.links.push_back(in_[static_cast<std::size_t>(to)]);
}

void Topology::between_nodes(DeviceId from, DeviceId to, Route& route) const {
  if (nics_per_node_ == 0) return;
  const Network& network = *cluster_.network;
  const bool through_ports = cluster_.links.kind == LinkKind::Pcie;
  const int n = cluster_.devices_per_node;
  const auto nic = [&](DeviceId device) {
    return static_cast<std::size_t>(network.per == NicPer::Node ? device / n : device);
  };
  const auto leaf = [&](DeviceId device) { return static_cast<std::size_t>(device / n / network.nodes_per_switch); };
  if (through_ports) route.links.push_back(out_[static_cast<std::size_t>(from)]);
  route.links.push_back(nic_out_[nic(from)]);
  if (!up_.empty() && leaf(from) != leaf(to)) {
    route.links.push_back(up_[leaf(from)]);
    route.links.push_back(down_[leaf(to)]);
  }
  route.links.push_back(nic_in_[nic(to)]);
  if (through_ports) route.links.push_back(in_[static_cast<std::size_t>(to)]);
  route.latency = network.latency;
  route.bandwidth = network.bandwidth;
  for (const int link : route.links)
    route.bandwidth = std::min(route.bandwidth, links_[static_cast<std::size_t>(link)].bandwidth);
}

}  // namespace pipewright
