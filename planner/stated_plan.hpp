// What a scenario states of a plan: the cut, as layers per stage or as the first layer of every stage but the first,
// and the devices of its workers, by their order or as a list.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::planner {

// The first device of every worker, copy by copy. Throws InputError for a list that does not place every worker on
// devices of its own.
std::vector<DeviceId> placement(const Scenario& scenario, const Plan& plan);

// Throws InputError where the workers of a stage are of several device classes.
void refuse_mixed(const Scenario& scenario, const Plan& plan);

// By chunk. Both throw InputError, at the partition's place, for numbers that do not cover the layers of so many stages
// and chunks once.
std::vector<LayerRange> by_counts(const Scenario& scenario, const std::vector<std::int64_t>& counts);
std::vector<LayerRange> by_cuts(const Scenario& scenario, const std::vector<std::int64_t>& first);

}  // namespace pipewright::planner
