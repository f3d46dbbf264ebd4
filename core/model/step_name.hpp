// What the parameters of a step are called where they are written down: in an export and in a launch file.
#pragma once

#include <cstddef>
#include <string>

#include "core/model/program.hpp"

namespace pipewright::core {

// "linear_3": step 3 of the program.
inline std::string step_name(const Program& program, std::size_t step) {
  return std::string(program.steps[step].operation) + "_" + std::to_string(step);
}

}  // namespace pipewright::core
