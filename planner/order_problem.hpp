// What a plan asks of an order of its passes.
#pragma once

#include "core/plan/plan.hpp"
#include "sim/finder/problem.hpp"

namespace pipewright::core {
class CostModel;
}

namespace pipewright::planner {

// Passes and messages of full micro-batches as the plan's costs have them, each message a latency on links that nothing
// else uses; a recomputation counts with its B. Without memory.
OrderProblem order_times(const Plan& plan, const CostModel& cost);

// With what a micro-batch holds as the memory model has it, in bytes; what waits in the host's memory, from B on. The caps
// stay 0.
OrderProblem order_problem(const Plan& plan, const CostModel& cost);

}  // namespace pipewright::planner
