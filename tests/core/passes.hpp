// What a scenario's source of prices says of its first layer.
#pragma once

#include <cstdint>

#include "core/cost/cost_model.hpp"

namespace pipewright::tests {

inline CostSource::Passes price(const Scenario& scenario, std::int64_t samples = 1) {
  return CostModel(scenario).source().price(scenario.model, 0, samples);
}

}  // namespace pipewright::tests
