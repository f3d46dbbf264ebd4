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
//     With rails, NICs of the i-th devices of nodes_per_switch nodes hang on one leaf, which carries nodes_per_switch NICs. From
//     one rail to another: behind an NVSwitch first to the neighbour on the receiver's rail, as NCCL does ([NcclPxn22]), and
//     out by its NIC; else over the spine, as rings of collectives do there.        2 nodes, device 0 to 9: port out 0, port in 1, NIC out 1, NIC in 9
// Latency: `links.latency` inside a node, `network.latency` alone between nodes (it is measured end to end, so the
// ports on the way add nothing). Tests: tests/core/topology_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/cluster/cluster.hpp"

namespace pipewright::core {

// Groups of devices of which each communicates inside itself.
using DeviceGroups = std::vector<std::vector<DeviceId>>;

struct Link {
  std::string name;     // "node 0 device 3 out", "node 1 NIC in", ...
  Bandwidth bandwidth;  // capacity of this direction (host memory: half its rate, as every copy passes it twice)
};

struct Route {
  std::vector<int> links;  // indices into Topology::links, in order of travel, each once
  Bandwidth bandwidth{0};  // rate of one transfer that is alone on the route; 0: the transfer takes no time (ideal)
  Time latency;            // from one end to the other
};

// What a link is, whichever node has it: links of one kind have one bandwidth on every cluster. `place` says which of
// them it is inside its node (or leaf switch): the device of a port or NIC, the pair of a mesh.
struct LinkPlace {
  enum class Kind : std::uint8_t { PortOut, PortIn, Pair, HostMemory, NicOut, NicIn, Up, Down };
  Kind kind{};
  int owner = 0;  // node, or leaf switch
  int place = 0;
  bool operator==(const LinkPlace&) const = default;
};

// Links are numbered node by node: ports (or pairs), host memory, NICs; then those of the leaf switches. All nodes are
// wired alike, so a link's place follows from its number, and nothing here grows with the cluster.
class Topology {
 public:
  // Throws InputError (at the cluster's place) for more than `kMostDevices` devices, a bandwidth of 0, several nodes
  // without a network, and a mesh without peer access (it has no way through host memory).
  explicit Topology(const Cluster& cluster);

  int link_count() const { return nodes_ * per_node() + leaves_ * per_leaf_; }
  LinkPlace place(int link) const;
  Bandwidth bandwidth(int link) const;
  Link link(int link) const;  // with its name
  std::vector<Link> links() const;
  int devices() const { return devices_; }
  // Devices after which the wiring repeats itself: those of a node, or of a leaf switch whose uplinks can bind.
  int period() const {
    return cluster_.devices_per_node * (leaves_ > 0 ? std::min(cluster_.network->nodes_per_switch, nodes_) : 1);
  }

  // Route of a transfer from one device to another. from == to: no links, no time. O(1) links, built on each call.
  Route route(DeviceId from, DeviceId to) const;
  void route(DeviceId from, DeviceId to, Route& result) const;  // the same, into memory that is there

  // Which kind of route it is. Routes of one kind pass links of the same kinds, and have one bandwidth and latency.
  enum class Way : std::uint8_t { None, InsideNode, BetweenNodes, BetweenLeaves, ByNeighbour, ByNeighbourAndSpine };
  Way way(DeviceId from, DeviceId to) const;

 private:
  int per_node() const { return links_in_node_ + nics_per_node_ * per_nic_; }
  int port(LinkPlace::Kind kind, DeviceId device) const;
  int nic(LinkPlace::Kind kind, DeviceId device) const;
  int leaf(DeviceId device) const {
    const int n = cluster_.devices_per_node, nodes = device / n / cluster_.network->nodes_per_switch;
    return rails_ ? nodes * n + device % n : nodes;
  }
  // Whether a neighbour in the node sends for another device at no more than its links' cost.
  bool passes_on() const {
    const NodeLinks& links = cluster_.links;
    return links.kind == LinkKind::Ideal || (links.kind == LinkKind::Nvswitch && links.peer_access);
  }
  // By whose NIC a device sends.
  DeviceId sender(DeviceId from, DeviceId to) const;
  int uplink(LinkPlace::Kind kind, int leaf) const { return nodes_ * per_node() + leaf * per_leaf_ + second(kind); }
  int second(LinkPlace::Kind kind) const;
  Bandwidth uplink_bandwidth() const;
  std::string name(const LinkPlace& place) const;
  void inside_node(DeviceId from, DeviceId to, Route& route) const;
  void between_nodes(DeviceId from, DeviceId to, Route& route) const;

  Cluster cluster_;
  int devices_ = 0, nodes_ = 0;
  int ports_per_device_ = 0;  // 0: the links inside a node are none, or pairs
  int pairs_ = 0;             // of a node's mesh
  int links_in_node_ = 0;     // ports, or pairs, and host memory
  bool host_memory_ = false;
  int nics_per_node_ = 0;           // 0: one node, or an ideal network
  int per_nic_ = 0, per_leaf_ = 0;  // 1: half duplex, both directions are one link; else 2
  int leaves_ = 0;                  // leaf switches whose uplinks can bind
  bool rails_ = false;
};

// More than any cluster has; keeps a slip of the keyboard from filling the memory.
constexpr int kMostDevices = 1 << 18;
constexpr std::int64_t kMostMeshLinks = 1 << 20;

}  // namespace pipewright::core
