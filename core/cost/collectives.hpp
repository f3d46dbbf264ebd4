// All-reduce in closed form, as phases that load links.  n members, S bytes, alpha latency per hop, beta bandwidth:
//     ring          2(n-1) alpha + 2(n-1)/n * S / beta                                        [Thakur05]
//     tree          2 ceil(log2 n) alpha + 2 S / beta     (n = 2: S / beta)                   [Sanders09]
//     hierarchical  reduce-scatter inside the nodes, ring of S/g between them, all-gather inside (g members per node)
//
// A phase moves `bytes` at `rate` while every link that it uses carries weight * rate, so that it contends with other
// transfers as one flow. Alone, its rate is the least of bandwidth / weight over its links, and no hop goes faster than
// its own route allows (a copy through host memory).
//
// Ring: members in the order of their devices, so that a ring enters and leaves each node once. 8 devices, one switch
// of 100 GB/s ports, S = 800 MB, alpha = 1 us: 14 us + 2 * 7/8 * 800 MB / (100 GB/s) = 14.014 ms.
// Two nodes of 4 devices with one NIC of 10 GB/s each: the same ring crosses each NIC once, rate 10 GB/s.
//
// Tree: two binary trees of half the bytes each; a member that passes sums on in one tree is a leaf in the other, so
// that both directions of every port are full and each phase (to the roots, and back) takes S / beta. The trees are
// those of in-order numbering; one binary tree alone would need 2 S / beta per phase, as inner members receive twice.
//
// Hierarchical: g members in each of p nodes. Inside (twice): ring of (g-1)/g * S, (g-1) hops. Between: g rings at
// once, one through the j-th members of all nodes, each 2(p-1)/p * S/g. Two nodes of 4, NIC per node of 10 GB/s, ports
// of 100 GB/s, S = 800 MB: 6 ms + (4 rings share a NIC: 2.5 GB/s each) 200 MB / 2.5 GB/s = 80 ms + 6 ms.
// Where the device states how its collectives run by size (core/cluster/collective_curves.hpp), a group takes the least of
// these ways instead: inside a node those of the curve; between nodes with equal groups, rings over all NICs of a node and
// trees in three protocols, with NCCL's latencies. Every way loads the links as the rings over all NICs do. Groups of other
// forms take rings and trees as above. An all-gather and a reduce-scatter have ways of their own; without a curve each takes
// half of a ring's all-reduce.
// Tests: tests/core/collectives_test.cpp.
#pragma once

#include <array>
#include <vector>

#include "core/cluster/topology.hpp"
#include "core/cost/fold.hpp"
#include "core/cost/step_costs.hpp"

namespace pipewright::core {

enum class AllReduce { Ring, Tree, Hierarchical };

// One group of members, priced for any number of bytes: routes and weights are worked out once. Or several groups that do
// the same at once, and share the links that they have in common.
class AllReduceGroup {
 public:
  // members: distinct devices in any order. `cluster`: for the ways of its first device class; nullptr: without.
  AllReduceGroup(std::vector<DeviceId> members, const Topology& topology, int devices_per_node,
                 const Cluster* cluster = nullptr);
  // Groups of as many members each, of which no device is in two.   tests/planner/sharding_test.cpp "hybrid sharding"
  static AllReduceGroup at_once(DeviceGroups groups, const Topology& topology, int devices_per_node,
                                const Cluster* cluster = nullptr);

  // Members form equal groups of more than one in several nodes: what Hierarchical needs.
  bool hierarchical() const { return hierarchical_; }
  std::size_t members() const { return count_; }

  // The phases of every algorithm, for one byte; none where it cannot be used.
  std::array<const std::vector<CollectivePhase>*, 4> algorithms() const {
    return {&ring_, &tree_, &hierarchy_, &rails_};
  }
  // Of the device's curve: start and rate of the bytes that a ring moves, 2 (n - 1) / n of all. Empty: it has none.
  struct Way {
    Time start;
    double rate = 0;  // bytes per second
  };
  const std::vector<Way>& ways() const { return ways_; }
  // Likewise of an all-gather or reduce-scatter, which moves (n - 1) / n of all bytes.
  const std::vector<Way>& gather_ways() const { return gather_ways_; }
  // Keeps of every phase's links those that `fold` keeps, by their new numbers. Rates and times are those of all links.
  void keep_links(const Fold& fold);
  // Of links of which others see another part: nobody else passes them. Rates and times stay.
  void keep_no_links();

  // One all-reduce of `bytes`; by the device's ways where it states them, whatever the algorithm. No phases and no time for
  // n <= 1 members or 0 bytes.
  Collective price(AllReduce algorithm, Bytes bytes) const;

  // One all-gather, or reduce-scatter, of `bytes` in all. Four members, 100 GB/s, 1 us, 8 MB: 3 + 60 us.
  //                                                          tests/core/collectives_test.cpp "gather"
  Time gather(Bytes bytes) const;
  Collective gathering(Bytes bytes) const;  // the same with what it loads

  // By the algorithm with the shortest time alone, ties to the earlier in the enum.
  Collective best(Bytes bytes) const;

 private:
  explicit AllReduceGroup(std::size_t members) : count_(members) {}
  void build(DeviceGroups& groups, const Topology& topology, int devices_per_node, const Cluster* cluster);
  void add_ways(const Cluster& cluster, const DeviceGroups& groups, const Topology& topology);
  Collective by_least_way(Bytes bytes) const;
  double passed(Bytes bytes) const;  // bytes that every member passes on when it gathers, or scatters, so many in all
  // A phase that passes `bytes` on in the way of the least time.
  CollectivePhase least_way(const std::vector<Way>& ways, double bytes) const;

  // Phases for one byte: `bytes` is the share of S that a phase moves.
  std::vector<CollectivePhase> ring_, tree_, hierarchy_, gather_hierarchy_, rails_;
  std::vector<Way> ways_;  // each loads the links as `rails_` does
  std::vector<Way> gather_ways_;
  std::size_t count_;
  bool hierarchical_ = false;
};

// Devices of all members of the all-reduces of a chunk: its holders in every copy.
std::vector<DeviceId> members(const Plan& plan, VirtualStageId v);

// One all-reduce of `bytes` over `members` (distinct devices). n <= 1: no phases, no time.
// Hierarchical needs a group that is `AllReduceGroup::hierarchical`.
Collective all_reduce(AllReduce algorithm, const std::vector<DeviceId>& members, Bytes bytes, const Topology& topology,
                      int devices_per_node);

}  // namespace pipewright::core
