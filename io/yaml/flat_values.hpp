// A scenario as a list of keys and values.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/question/scenario.hpp"

namespace pipewright::io {

using KeysAndValues = std::vector<std::pair<std::string, std::string>>;  // "plan.stages", "4"

// The values of a scenario by key, defaults included: what two scenarios differ in. Names and descriptions are left
// out.
KeysAndValues flat_values(const Scenario& scenario);

// Lines of YAML ("  stages: 4"), two spaces deeper per level, by key ("plan.stages"); items of lists by number;
// quotes around a text are left out.
KeysAndValues flat_lines(const std::string& yaml);

}  // namespace pipewright::io
