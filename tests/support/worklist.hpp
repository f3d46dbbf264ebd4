// The order of a step by a worklist: every worker runs its lists as far as it gets, is parked on what it lacks, and woken
// when that is known. No waves, slots or records: the oracle of sim/compiled_order, with which it shares the tables of who
// waits for whom (sim/dependencies, sim/stream_links), and no more. tests/support/oracle_engine.hpp shares not even these.
#pragma once

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"
#include "core/plan/timeline.hpp"

namespace pipewright::tests {

Timeline worklist(const Schedule& schedule, const StepCosts& costs);

}  // namespace pipewright::tests
