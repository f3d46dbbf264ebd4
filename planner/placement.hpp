// The devices of a plan's workers: in the order that a scenario asks for, or as it lists them.
#pragma once

#include <vector>

#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"

namespace pipewright {

// The first device of every worker, copy by copy. Throws InputError for a list that does not place every worker on
// devices of its own.
std::vector<DeviceId> placement(const Scenario& scenario, const Plan& plan);

// Throws InputError where the workers of a stage are of several device classes.
void refuse_mixed(const Scenario& scenario, const Plan& plan);

}  // namespace pipewright
