// A timeline in figures: what each device did, what limits the step, what it waits for.
#pragma once

#include <optional>

#include "core/answers/report.hpp"

namespace pipewright {

// One optimizer step, and samples per second (0 when it takes no time).
//     flush          step = makespan,                                      samples/s = global batch / step
//     asynchronous   samples/s = micro-batch * micro-batches per period * copies / period,   step = batch / (samples/s)
// Periods of 7 ns for 2 micro-batches of 3 samples on 2 copies: 12 samples in 7 ns; a batch of 5 takes 35/12, so 3 ns.
// tests/sim/summarize_test.cpp "the step of an asynchronous schedule is its batch over the steady rate"
Time step_time(const Plan& plan, Time makespan, const std::optional<SteadyState>& steady);
double samples_per_second(const Plan& plan, Time makespan, const std::optional<SteadyState>& steady);

// Everything that follows from the timeline alone (not: formulas, references, sensitivity, hints, provenance).
Report summarize(const Timeline& timeline, const Schedule& schedule, const Plan& plan, const StepCosts& costs,
                 const MemoryModel& memory, const Scenario& scenario, const std::optional<SteadyState>& steady);

}  // namespace pipewright
