// Links and routes of a cluster: what a transfer between two devices passes through and shares with others.
//
//   device --(port out)--> node fabric --(NIC out)--> leaf --(uplink)--> spine --(downlink)--> leaf --> NIC in -->
//   device
//
// A link is one direction of one cable (half duplex: both directions are one link). Switches have no limit of their
// own.
#pragma once

#include <string>
#include <vector>

#include "core/cluster/cluster.hpp"

namespace pipewright {

struct Link {
  std::string name;     // "node 0 device 3 out", "node 1 NIC in", ...
  Bandwidth bandwidth;  // capacity of this direction
};

struct Route {
  std::vector<int> links;  // indices into Topology::links, in order of travel, each once
  Bandwidth bandwidth{0};  // rate of one transfer that is alone on the route; 0: the transfer takes no time (ideal)
  Time latency;            // sum over the hops
};

class Topology {
 public:
  explicit Topology(const Cluster& cluster);

  const std::vector<Link>& links() const { return links_; }
  int devices() const { return devices_; }

  // Route of a transfer from one device to another. from == to: no links, no time. O(1) links, built on each call.
  Route route(DeviceId from, DeviceId to) const;

 private:
  // Implementation: index of first link of each group (see topology.cpp).
  Cluster cluster_;
  int devices_;
  std::vector<Link> links_;
  std::vector<int> out_, in_, nic_out_, nic_in_, up_, down_, host_, mesh_;
};

}  // namespace pipewright
