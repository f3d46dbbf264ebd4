// A second opinion on every engine: the rules of core/plan/schedule.hpp and core/cost/step_costs.hpp written down as
// equations and solved by sweeping over all of them until no time changes. Slow, short, and shares no code with sim/.
#pragma once

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"
#include "core/plan/timeline.hpp"

namespace pipewright::tests {

// schedule must be valid. Times of every op and transfer, in the order that Timeline asks for.
Timeline oracle_timeline(const Schedule& schedule, const StepCosts& costs);

}  // namespace pipewright::tests
