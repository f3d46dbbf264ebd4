// The time of collectives by size, as NCCL does them on the links of one node: the least of several ways, each a start
// and a share of the links' nominal bandwidth.
//
//     n members, S bytes (gathered, or to be reduced), N nominal bandwidth of a device's links in one direction
//     steps k = n - 1, all-reduce 2 (n - 1);   w = k / n S
//
//     small     start + hop k                         + w / (small N)
//     middle    1.13 (start + hop k)                  + w / (middle (1 - 1.05/n) N)
//     large     large_start + large_hop k             + w / (large (1 - lost/n) N)
//     switch    its start + hop log2 n                + w / (share N)      all-reduce of at least so many members
//
// An all-to-all of S bytes per member has ways of its own, start + hop (n - 1) + w / (share (1 - lost/n) N); a device that
// states none takes those of an all-gather. 8 H100, 64 MiB: 30.1 + 183.2 us.
//
// A larger message never takes less time. 1 KiB... A100, all-reduce of 8 over 512 B: 20.5 us; 256 MiB on H100: 1093 us.
//                                                                     tests/core/collective_curves_test.cpp
//
// Between nodes NCCL's own estimate of the latency of rings and trees is used (src/graph/tuning.cc): base + hops inside
// and between nodes by protocol (LL, LL128, Simple). 8 members in one node, ring: 15.0, 40.6, 56.0 us; 64 in 8 nodes,
// with 1 us to post a message: 156.4, 282.8, 585.2 us; an all-gather of them 81.5, 148.4, 296.8 us.
// g members per node, p nodes, B_nics what the NICs that a group uses reach together:
//     B = min(large (1 - lost/g) N, B_nics)                                    bus bandwidth
//     ring    LL min(B/2, 20.4 GB/s; 39 on 2 nodes), LL128 min(0.92 B, NICs * ll128), Simple B
//     tree    0.92 of each, LL 0.8 of its limit;     inside switches and a tree between them: from 4 members per node on
// An all-gather and a reduce-scatter have rings alone. On a network that others use all of it takes p^contention times as
// long: the median of repeated runs on 2 to 64 nodes of H100 with EFA over the best, contention 0.34.
//
// A message from device to device, as NCCL's send and receive:
//     start + max(S / (large N), min(S / (small N), middle))
// NCCL uses few channels for small messages, and more by size until all are in use: in between the time does not grow.
// H100, 16 MiB: 12.9 + 150 = 163 us; 256 MiB: 12.9 + 984 = 997 us.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster/kernel_curves.hpp"

namespace pipewright::core {

// How the devices of a node are wired.
enum class LinkKind {
  Ideal,     // transfers take no time (identities, textbook settings)
  Mesh,      // a link of its own for every ordered pair of devices
  Nvswitch,  // a port in and a port out per device, any pair at full rate
  Pcie,      // a port in and a port out per device, shared with the way to the NIC
};

// All-reduce inside the switch.
struct SwitchCurve {
  int members = 2;            // at least
  double start = 0, hop = 0;  // us
  double share = 1;
  bool operator==(const SwitchCurve&) const = default;
};

// One way of an all-to-all.
struct AllToAllWay {
  double start = 0, hop = 0;  // us
  double share = 1, lost = 0;
  bool operator==(const AllToAllWay&) const = default;
};

// A message between two devices of a node, as measured over such links: over others it takes what the links say.
struct MessageCurve {
  LinkKind links = LinkKind::Nvswitch;
  double start = 0;             // us
  double small = 1, large = 1;  // shares of the nominal bandwidth
  double middle = 0;            // us
  double band = 0;
  Provenance provenance = Provenance::Assumed;
  std::string source;
};

struct CollectiveCurve {
  double start = 0, hop = 0;              // us
  double small = 1, middle = 1;           // shares of the nominal bandwidth
  double large_start = 0, large_hop = 0;  // us
  double large = 1;
  double lost_gather = 0, lost_reduce = 0;  // of `large`, over n: small groups reach less
  double ll128 = 20;                        // GB/s of protocol LL128 through one NIC
  std::vector<SwitchCurve> in_switch;
  std::vector<AllToAllWay> all_to_all;
  std::optional<double> handed_on;  // share that kernels reach which hand tokens on in a node; absent: as an all-to-all
  double band = 0;                  // of its rates and starts: core/cluster/bands.hpp
  Provenance provenance = Provenance::Assumed;
  std::string source;
  Place place;
};

enum class CollectiveKind { AllReduce, AllGather, ReduceScatter, AllToAll };

// One way of a collective: what it takes for bytes / rate on top of its start.
struct CollectiveWay {
  double start = 0;  // us
  double rate = 0;   // of w: inside a node a share of the nominal bandwidth, between nodes bytes per second
};
// The ways of a group inside one node. `members` >= 2.
std::vector<CollectiveWay> ways_inside(const CollectiveCurve& curve, CollectiveKind kind, int members);

// Microseconds of the least of them. `nominal`: bytes per second.
double collective_us(const CollectiveCurve& curve, CollectiveKind kind, int members, double bytes, double nominal);

// Microseconds of a message of `bytes` > 0. `nominal`: bytes per second, more than 0.
double message_us(const MessageCurve& curve, double bytes, double nominal);

enum class CollectiveShape { Ring, Tree };
// NCCL's latencies in us of LL, LL128 and Simple: `members` on `nodes`. post: us that the host takes to post a message; nic:
// latency of a NIC.
std::array<double, 3> tuner_latency(CollectiveShape shape, CollectiveKind kind, int members, int nodes, double post,
                                    double nic);

// A group with as many members in each of several nodes, and what is between them.
struct NodeSpan {
  int members = 2, nodes = 2;  // 2 <= nodes <= members
  double nominal = 0;          // bytes per second of a device's links inside its node; 0: it uses none
  int rails = 1;               // NICs of a node that the group uses at once
  double nics = 0;             // bytes per second that they reach together
  double nic_us = 0;           // latency of a NIC
  double slower = 1;           // times as long, for the traffic of others
};
// The ways of such a group: start in us, rate in bytes per second of w.
std::vector<CollectiveWay> ways_between(const CollectiveCurve& curve, CollectiveKind kind, const NodeSpan& span);

}  // namespace pipewright::core
