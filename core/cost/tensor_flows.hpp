// What tensor-parallel groups exchange as flows over links (plan.tensor_links: shared).
//
// Of an op that takes T, the bytes of all its exchanges alone take x = T - T', where T' is its time if bytes took none: latencies,
// waits for the slowest member, and what runs beside products stay in T'. They are one flow over the links of the group's
// ring, of the bytes that each member passes on and of their mean rate over x, half of it before and half of it behind T - x of
// computing: so it meets what the op before sends, and reductions that begin before the op's end. Alone an op takes T, to the
// nanosecond; where other traffic leaves the flow half of its rate all the time, T + x. One flow in place of one per layer: how
// long an op is slowed is right while what it meets does not change; when within the op, it is not.
//     Of an op of 20 ns 8 are exchanged. A message of 10 ns begins with it on one of the ring's links: both have half of it, so
//     that 4 ns take 8, and after 12 ns of computing and 4 more the op ends at 24.   tests/sim/tensor_flows_test.cpp
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/cost/step_costs.hpp"

namespace pipewright::core {

// Of a time, what comes before computing and what behind it.
constexpr Time second_half(Time sent) {
  return {sent.value / 2};
}
constexpr Time first_half(Time sent) {
  return sent - second_half(sent);
}

// `durations`, by a cost model, of full micro-batches or of the last one.
using DurationsOf = std::function<std::vector<Time>(const CostModel& cost, bool last)>;

// Nothing where no group exchanges anything, or the plan does not ask for it. `lead`: the first device of a worker's group.
std::optional<StepCosts::TensorFlows> tensor_flows(const Plan& plan, const CostModel& cost, const StepCosts& costs,
                                                   const DurationsOf& durations,
                                                   const std::function<DeviceId(WorkerId)>& lead);

}  // namespace pipewright::core
