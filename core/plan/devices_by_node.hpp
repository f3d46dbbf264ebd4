// How many devices of which node a plan takes.
#pragma once

#include <map>

#include "core/cluster/cluster.hpp"
#include "core/plan/plan.hpp"

namespace pipewright {

// Nodes without any are left out. 12 devices in a row on nodes of 8: {0: 8, 1: 4}.
// tests/planner/launch_test.cpp "as many ranks on every node"
std::map<int, int> devices_by_node(const Plan& plan, const Cluster& cluster);

}  // namespace pipewright
