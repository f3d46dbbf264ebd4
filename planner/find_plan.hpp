// The scenario's plan with every number settled: batch split, partition, placement.
#pragma once

#include <variant>

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/scenario.hpp"

namespace pipewright {

// Throws InputError (file:line:column) for what the scenario must not ask: unknown schedule, more stages than layers,
// a batch that does not divide, more workers than devices.
Plan find_plan(const Scenario& scenario, const CostModel& cost);

}  // namespace pipewright
