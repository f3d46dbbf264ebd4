// The other engine: an event queue with links whose rates change whenever a transfer begins or ends. Serves what the
// static order cannot: transfers and collectives that share links. Where both apply they agree to the nanosecond.
#pragma once

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"
#include "core/plan/timeline.hpp"

namespace pipewright {

enum class LinkUse {
  Shared,   // transfers divide links (max-min or fifo, StepCosts::sharing)
  Private,  // every transfer has its route alone: the static engine's assumption
};

// How an all-reduce loads the links.
enum class CollectiveSteps {
  ClosedForm,  // each phase is one flow over all of its links
  StepByStep,  // a ring of n members as 2(n-1) steps of n messages of S/n bytes, a barrier after each step. For rings
               // (one phase) whose hops are known (StepCosts::ring_hops); others stay in closed form. Slower, and the
               // closed form's test oracle: on an empty network both take the same time but for one rounding per step.
};

// schedule must be valid (`validate`). Throws InputError when the times overflow or the schedule is too large
// (2^29 messages or workers).
Timeline event_order(const Schedule& schedule, const StepCosts& costs, LinkUse links = LinkUse::Shared,
                     CollectiveSteps steps = CollectiveSteps::ClosedForm);

}  // namespace pipewright
