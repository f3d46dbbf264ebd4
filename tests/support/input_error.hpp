#pragma once

#include <string>

#include "core/check.hpp"

namespace pipewright::tests {

// The message of the InputError that a step ends with; "no error".
std::string error_of(const auto& step) {
  try {
    step();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace pipewright::tests
