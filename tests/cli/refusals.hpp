// What the tests of the command line share.
#pragma once

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/run_program.hpp"

namespace pipewright {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A run that must fail: status 2, nothing on standard output, one "error: " line or more.
inline std::string error_of(const std::vector<std::string>& arguments) {
  const ProgramRun run = run_program(arguments);
  CHECK(run.status == 2);
  CHECK(run.out == "");
  CHECK(run.err.starts_with("error: "));
  return run.err;
}

}  // namespace pipewright
