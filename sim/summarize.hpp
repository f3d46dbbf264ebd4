// A timeline in figures: what each device did, what limits the step, what it waits for.
#pragma once

#include <optional>

#include "core/answers/report.hpp"

namespace pipewright::sim {

// Of a step that begins with nothing under way: the makespan. Without a barrier between steps (plan.barrier: none) the
// longest span of a stage, from its first op to its last, or of a channel between two stages. As all stages can begin
// each step that much later than the one before it, consecutive steps fit together, a parallelogram each.
//                                                                                            [ZeroBubble23] section 4
// ZB-H2, K = 4, M = 8, f = b = w = 1: the makespan is 27, and 100 steps in a row take 100 * 24 + 3.
//                                                                   tests/sim/barrier_test.cpp "a step takes the longest"
Time step_span(const Plan& plan, const Timeline& timeline);

// One optimizer step, and samples per second (0 when it takes no time).
//     flush          step = step_span,                                     samples/s = global batch / step
//     asynchronous   samples/s = micro-batch * micro-batches per period * copies / period,   step = batch / (samples/s)
// Periods of 7 ns for 2 micro-batches of 3 samples on 2 copies: 12 samples in 7 ns; a batch of 5 takes 35/12, so 3 ns.
// tests/sim/summarize_test.cpp "the step of an asynchronous schedule is its batch over the steady rate"
Time step_time(const Plan& plan, Time span, const std::optional<SteadyState>& steady);
double samples_per_second(const Plan& plan, Time span, const std::optional<SteadyState>& steady);

// Everything that follows from the timeline alone (not: formulas, references, sensitivity, hints, provenance).
Report summarize(const Timeline& timeline, const Schedule& schedule, const Plan& plan, const StepCosts& costs,
                 const MemoryModel& memory, const Scenario& scenario, const std::optional<SteadyState>& steady);

}  // namespace pipewright::sim
