// Default engine: longest path over fixed orders, no event queue. It compiles the order and sweeps it once
// (sim/compiled_order.hpp).
//
// Every worker runs its ops in the given order, so an op starts at
//     start = max(end of the op before it on its stream, arrival of what it needs)
// and this has one solution whatever the order in which workers are visited. Exact when no two transfers meet on a
// link; `simulate` checks that afterwards and else uses the event queue.
#pragma once

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"
#include "core/plan/timeline.hpp"

namespace pipewright::sim {

// End of the last op. No timeline is kept. schedule must be valid (`validate`).
Time static_order_makespan(const Schedule& schedule, const StepCosts& costs);

// The same with the times of every op and transfer.
Timeline static_order(const Schedule& schedule, const StepCosts& costs);

}  // namespace pipewright::sim
