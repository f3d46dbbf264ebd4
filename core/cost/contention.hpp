// How much longer ops and collectives of a plan take while both run on a device (Device::contention).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/cost/step_costs.hpp"

namespace pipewright::core {

// Durations of the plan's ops at the prices of a model: [chunk * kKinds + kind].
using OpDurations = std::function<std::vector<Time>(const CostModel&)>;

// A device as it is for what computes beside a collective: fewer multiprocessors, memory that takes longer.
void set_beside_collectives(Device& device);

// `alone`: those at the prices of `cost`. None: nothing is slowed.              tests/planner/contention_test.cpp
std::optional<StepCosts::Contention> contention_of(const Plan& plan, const CostModel& cost,
                                                   const std::vector<Time>& alone, const OpDurations& durations);

}  // namespace pipewright::core
