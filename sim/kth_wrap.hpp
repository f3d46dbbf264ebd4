// The time of an order by the rule of the evaluator behind zero-bubble's tables, which lets most of the ways between
// the last stage and the first one cost nothing. It reproduces published figures; no plan is priced by it.
#pragma once

#include <optional>

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"

namespace pipewright::sim {

// End of the last op, updates left out, of copy 0. What goes from the last stage's chunk to the first stage's next
// chunk, and its gradient back, is waited for by every K-th micro-batch only (m mod K = 0) and by no other one:
//     start = max(the worker is free, own forward, the neighbour's end + occupancy + latency unless left out)
// K = 8, v = 3, M = 24 at the published times of 1.5B: an idle share of .1055, where waiting for all gives .1090.
// Nothing where a stage has replicas, or chunks do not lie in a loop.              [ZeroBubble23] tables 5 and 8
// tests/papers/zero_bubble_test.cpp "72 bubble rates"
std::optional<Time> makespan_with_kth_wraps(const Schedule& schedule, const StepCosts& costs);

}  // namespace pipewright::sim
