// Links and routes of a cluster: what a transfer between two devices passes through and shares with others.
//
//   device --(port out)--> node fabric --(NIC out)--> leaf --(uplink)--> spine --(downlink)--> leaf --> NIC in -->
//   device
//
// A link is one direction of one cable (half duplex: both directions are one link). Switches have no limit of their
// own, and neither has a link kind `ideal`: such hops have no links and take no time.
//
// What a transfer passes, by the kind of the links inside a node:
//     nvswitch   port out of one device, port in of the other
//     pcie       the same ports, and they are also the device's way to the NIC
//     mesh       the pair's own link
//     no peer access   port out, host memory, port in, one half after the other (store and forward). The DMA of a half
//                      goes at the pace of the slower of its two ends, so that
//                      1/rate = 1/min(out, host) + 1/min(in, host)
//                      out = in = 12 GB/s, host = 24 GB/s: 1/12 + 1/12 = 1/6, 6 GB/s
//                      Each byte crosses host memory twice, written and read: as a link that the copies of a node share
//                      it has host/2, 12 GB/s, two such copies at once.
// and between nodes:
//     NIC out, NIC in; when the nodes hang on different leaf switches and the leaves are oversubscribed, also
//     the uplink and the downlink, each of    nodes_per_switch * NICs per node * bandwidth / oversubscription
//                      2 nodes x 8 NICs x 25 GB/s / 4 = 100 GB/s
//     (without oversubscription an uplink carries all its NICs at once and can never bind: it is left out).
// Latency: `links.latency` inside a node, `network.latency` alone between nodes (it is measured end to end, so the
// ports on the way add nothing). Tests: tests/core/topology_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/cluster/cluster.hpp"

namespace pipewright {

struct Link {
  std::string name;     // "node 0 device 3 out", "node 1 NIC in", ...
  Bandwidth bandwidth;  // capacity of this direction (host memory: half its rate, as every copy passes it twice)
};

struct Route {
  std::vector<int> links;  // indices into Topology::links, in order of travel, each once
  Bandwidth bandwidth{0};  // rate of one transfer that is alone on the route; 0: the transfer takes no time (ideal)
  Time latency;            // from one end to the other
};

class Topology {
 public:
  // Throws InputError (at the cluster's place) for more than `kMostDevices` devices, a bandwidth of 0, several nodes
  // without a network, and a mesh without peer access (it has no way through host memory).
  explicit Topology(const Cluster& cluster);

  const std::vector<Link>& links() const { return links_; }
  int devices() const { return devices_; }

  // Route of a transfer from one device to another. from == to: no links, no time. O(1) links, built on each call.
  Route route(DeviceId from, DeviceId to) const;

 private:
  int new_link(const std::string& name, Bandwidth bandwidth);
  void add_node_links(int node);
  void add_nics(int node);
  void add_leaves();
  void inside_node(DeviceId from, DeviceId to, Route& route) const;
  void between_nodes(DeviceId from, DeviceId to, Route& route) const;

  Cluster cluster_;
  int devices_;
  int nics_per_node_ = 0;  // 0: one node, or an ideal network
  std::vector<Link> links_;
  // Links by device (ports), by node (host memory, first link of the mesh), by NIC and by leaf switch; empty where the
  // cluster has none. Half duplex: the entries of both directions are the same link.
  std::vector<int> out_, in_, host_, mesh_, nic_out_, nic_in_, up_, down_;
};

// More than any cluster has; keeps a slip of the keyboard from filling the memory.
constexpr int kMostDevices = 1 << 18;
constexpr std::int64_t kMostMeshLinks = 1 << 20;

}  // namespace pipewright
