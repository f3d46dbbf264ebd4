// All-reduce in closed form, as phases that load links.  n members, S bytes, alpha latency per hop, beta bandwidth:
//     ring          2(n-1) alpha + 2(n-1)/n * S / beta
//     tree          2 ceil(log2 n) alpha + 2 S / beta
//     hierarchical  reduce-scatter inside the nodes, ring of S/g between them, all-gather inside (g members per node)
#pragma once

#include <vector>

#include "core/cluster/topology.hpp"
#include "core/cost/step_costs.hpp"

namespace pipewright {

enum class AllReduce { Ring, Tree, Hierarchical };

// One all-reduce of `bytes` over `members` (distinct devices). n <= 1: no phases, no time.
Collective all_reduce(AllReduce algorithm, const std::vector<DeviceId>& members, Bytes bytes, const Topology& topology,
                      int devices_per_node);

// The algorithm with the shortest time alone (ties to the earlier in the enum): ring, tree, or hierarchical where the
// members form equal groups of more than one per node.
Collective best_all_reduce(const std::vector<DeviceId>& members, Bytes bytes, const Topology& topology,
                           int devices_per_node);

}  // namespace pipewright
