// Schedule x prices -> timeline. Has no word for "GPipe".
#pragma once

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"
#include "core/plan/timeline.hpp"

namespace pipewright::sim {

enum class Engine { Auto, StaticOrder, EventQueue };

// Auto: static order first; when two transfers met on a link, the event queue instead. Timeline::engine names the one
// used and Timeline::engine_reason says why. The result passes `validate(timeline, schedule, costs)`.
Timeline simulate(const Schedule& schedule, const StepCosts& costs, Engine engine = Engine::Auto);

// First link on which two transfers (or a transfer and an all-reduce) overlap in time, or -1. O(transfers).
int first_shared_link(const Timeline& timeline, const Schedule& schedule, const StepCosts& costs);

// Independent check of a timeline, knows no engine: strict order without overlap on every stream, every op after what
// it needs, durations as priced, messages of a channel in sequence, makespan the last end. "" or one sentence.
std::string validate(const Timeline& timeline, const Schedule& schedule, const StepCosts& costs);

}  // namespace pipewright::sim
