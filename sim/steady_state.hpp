// Cycle time of an asynchronous schedule: how much longer `p` more micro-batches take once the pipeline is full.
#pragma once

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"
#include "core/plan/timeline.hpp"

namespace pipewright::sim {

// Looks for a period in the ends of the workers' backward ops: p micro-batches (a multiple of lcm of the replica
// counts) after which all workers' times have grown by one same D, over a window as long as the pipeline is deep. Exact
// integers. No period: averaged over the second half, `exact` false.
SteadyState steady_state(const Schedule& schedule, const StepCosts& costs, const Timeline& timeline);

// Micro-batches that a run needs so that `steady_state` can find a period of this shape.
int micro_batches_for_steady_state(const ScheduleShape& shape);

}  // namespace pipewright::sim
