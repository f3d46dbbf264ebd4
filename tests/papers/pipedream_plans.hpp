// PipeDream's own plan for a scenario, as a baseline: its optimizer (pipedream_optimizer.hpp) on the chain of layers
// in their order, one level of machines where every worker is a node of its own or all are in one node, else two.
#pragma once

#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "tests/papers/pipedream_optimizer.hpp"

namespace pipewright::tests {

// shell as in planner/replicated.hpp. Every worker of the cluster is used; memory is not looked at, as the published
// program does not unless asked.
//
// PipeDream says how many replicas a stage has on how many servers, not which one takes which micro-batch. Both orders
// are returned where they differ: replica j on server j mod servers (micro-batches can stay inside a server), and the
// replicas of a server one after the other.
//     2 servers of 2, the first stage on one device of both: devices 0 2 | 1 3 in either order; on both of one: 0 1.
std::vector<Plan> pipedream_plans(const Plan& shell, const CostModel& cost, PipeDreamRule rule,
                                  PipeDreamTransfer transfer);

}  // namespace pipewright::tests
