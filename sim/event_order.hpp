// The other engine: an event queue with links whose rates change whenever a transfer begins or ends. Serves what the
// static order cannot: transfers and collectives that share links. Where both apply they agree to the nanosecond.
#pragma once

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"
#include "core/plan/timeline.hpp"

namespace pipewright::sim {

enum class LinkUse {
  Shared,   // transfers divide links (max-min or fifo, StepCosts::sharing)
  Private,  // every transfer has its route alone: the static engine's assumption
};

// schedule must be valid (`validate`). Throws InputError when the times overflow or the schedule is too large
// (2^29 messages or workers).
Timeline event_order(const Schedule& schedule, const StepCosts& costs, LinkUse links = LinkUse::Shared);

}  // namespace pipewright::sim
