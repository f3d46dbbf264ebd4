// One plan, priced: schedule, prices, timeline, steady state, memory, figures.
#pragma once

#include <optional>

#include "core/answers/report.hpp"
#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "sim/simulate.hpp"

namespace pipewright::planner {

// The plan's schedule over `micro_batches` micro-batches per copy. Aborts (our bug) when the generator's list does not
// pass `validate`.
Schedule make_schedule(const Plan& plan, ScheduleShape shape);

// Steady state of an asynchronous schedule (none for one with a flush): from the plan's own run where that is long
// enough to show a period, else from a longer one in which every micro-batch is full.
std::optional<SteadyState> steady_state_of(const Schedule& schedule, const StepCosts& costs, const Timeline& timeline,
                                           Engine engine);

// The step of a schedule with a flush by the static order: step_span of its timeline, without one where none is needed.
Time static_step(const Plan& plan, const Schedule& schedule, const StepCosts& costs);

// The engine that ran: what a second run "with the same engine" asks for.
Engine engine_of(const Timeline& timeline);

// Ops and messages of one run over all workers that are simulated: the measure for what may be run again within a
// blink.
std::int64_t run_size(const Schedule& schedule, const StepCosts& costs);

// Which copies are simulated: those that run alike once, or each by itself, for who compares a real run with them.
enum class Copies { Folded, Each };

// The priced plan with the figures that follow from its timeline (`summarize`). `answer.scenario` is cost.scenario().
// Ops are priced as if all workers always computed: what searches compare.
Answer price(const Plan& plan, const CostModel& cost, Engine engine, Copies copies = Copies::Folded);

// The prices of a run in which copies that run alike are folded.
StepCosts folded_costs(const Plan& plan, const CostModel& cost);

// The same with each op priced by the number of workers that compute while it runs (sim/at_load.hpp), where the prices
// tell them apart.
void settle(Answer& answer, Engine engine);

}  // namespace pipewright::planner
