// The rows of `capacity`: for every variant of a scenario's `vary:` block, or for the scenario itself, the largest value of
// a whole number with which it fits. A scenario with a block `run:` is asked of what a real run takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/answers/capacity.hpp"
#include "io/read/scenario_file.hpp"

namespace pipewright::study {

struct CapacityRows {
  std::vector<Capacity> found;
  std::string failed;  // a line for each variant that has no answer
  std::string ended;   // what was being done when a signal asked to end, or ""
};

// `over`: the key that grows, "model.layers". `most`: no larger value is tried. Throws InputError for what cannot grow,
// for a bad scenario, and where no variant has an answer.
CapacityRows capacity_rows(const ScenarioFile& file, const std::string& over, std::optional<std::int64_t> most);

}  // namespace pipewright::study
