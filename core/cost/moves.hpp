// What activations take to a partner's memory, or to the host's, and back: the part of step_costs about these.
#pragma once

#include <functional>

#include "core/cost/step_costs.hpp"
#include "core/plan/plan.hpp"

namespace pipewright::core {

// Fills StepCosts::moves where the plan moves anything. Every device of a worker moves what it holds itself.
//     to a partner    bytes / bandwidth of the route + its latency, over the links of messages        [BPipe23]
//     to the host     bytes / `to_host` (core/cost/host_copies.hpp)                           [ZeROInfinity21] section 5
// 200 MB over 600 GB/s: 0.333 ms; to a host at 25 GB/s: 8 ms.   tests/sim/partner_moves_test.cpp, tests/sim/offload_test.cpp
void price_moves(StepCosts& costs, const Plan& plan, const CostModel& cost,
                 const std::function<Route(WorkerId, WorkerId)>& route,
                 const std::function<DeviceId(WorkerId)>& device);

}  // namespace pipewright::core
