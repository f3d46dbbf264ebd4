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
// A larger message never takes less time. 1 KiB... A100, all-reduce of 8 over 512 B: 20.5 us; 256 MiB on H100: 1093 us.
//                                                                     tests/core/collective_curves_test.cpp
//
// Between nodes NCCL's own estimate of the latency of rings and trees is used (src/graph/tuning.cc): base + hops inside
// and between nodes by protocol (LL, LL128, Simple). 8 members in one node, ring: 15.0, 40.6, 56.0 us; 64 in 8 nodes,
// with 1 us to post a message: 156.4, 282.8, 585.2 us.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/cluster/kernel_curves.hpp"

namespace pipewright {

// All-reduce inside the switch.
struct SwitchCurve {
  int members = 2;            // at least
  double start = 0, hop = 0;  // us
  double share = 1;
  bool operator==(const SwitchCurve&) const = default;
};

struct CollectiveCurve {
  double start = 0, hop = 0;              // us
  double small = 1, middle = 1;           // shares of the nominal bandwidth
  double large_start = 0, large_hop = 0;  // us
  double large = 1;
  double lost_gather = 0, lost_reduce = 0;  // of `large`, over n: small groups reach less
  double ll128 = 20;                        // GB/s of protocol LL128 through one NIC
  std::vector<SwitchCurve> in_switch;
  double band = 0;  // of its rates and starts: core/cluster/bands.hpp
  Provenance provenance = Provenance::Assumed;
  std::string source;
  Place place;
};

enum class CollectiveKind { AllReduce, AllGather, ReduceScatter };

// One way of a collective: what it takes for bytes / rate on top of its start.
struct CollectiveWay {
  double start = 0;  // us
  double rate = 0;   // of w, as a share of the nominal bandwidth
};
// The ways of a group inside one node. `members` >= 2.
std::vector<CollectiveWay> ways_inside(const CollectiveCurve& curve, CollectiveKind kind, int members);

// Microseconds of the least of them. `nominal`: bytes per second.
double collective_us(const CollectiveCurve& curve, CollectiveKind kind, int members, double bytes, double nominal);

enum class CollectiveShape { Ring, Tree };
// NCCL's latencies in us of LL, LL128 and Simple: `members` on `nodes`. post: us that the host takes to post a message; nic:
// latency of a NIC.
std::array<double, 3> tuner_latency(CollectiveShape shape, CollectiveKind kind, int members, int nodes, double post,
                                    double nic);

}  // namespace pipewright
