// The largest value of a whole number with which a variant of a scenario fits its devices: a row of `capacity`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/plan/capacity.hpp"
#include "io/scenario_file.hpp"

namespace pipewright {

// `most`: no larger value is tried. A scenario with a block `run:` is asked of what a real run takes. Throws InputError
// (planner/capacity.hpp).
Capacity capacity_row(const ScenarioFile& file, const std::string& over, const VariedPoint& point,
                      std::optional<std::int64_t> most = std::nullopt);

}  // namespace pipewright
