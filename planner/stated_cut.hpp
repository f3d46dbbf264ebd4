// The cut that a scenario states: layers per stage, or the first layer of every stage but the first.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"

namespace pipewright {

// By chunk. Both throw InputError, at the partition's place, for numbers that do not cover the layers of so many stages
// and chunks once.
std::vector<LayerRange> by_counts(const Scenario& scenario, const std::vector<std::int64_t>& counts);
std::vector<LayerRange> by_cuts(const Scenario& scenario, const std::vector<std::int64_t>& first);

}  // namespace pipewright
