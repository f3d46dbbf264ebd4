// What the plan is compared with: one device, and data parallelism on the same devices.
#pragma once

#include "core/answers/report.hpp"
#include "core/cost/cost_model.hpp"

namespace pipewright::planner {

// Fills references, speedup_one_device, speedup_data_parallel and scaling_efficiency of `answer.report`.
//   one device            every micro-batch of the global batch, one after the other, whether it fits or not
//   data parallelism      every worker holds the whole model; max(1, global batch / (W * micro-batch)) micro-batches
//   each
void add_references(Answer& answer, const CostModel& cost);

}  // namespace pipewright::planner
