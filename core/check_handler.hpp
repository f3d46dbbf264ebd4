// What a failed PP_CHECK does in a process that is not ours alone, as that of a Python interpreter: it throws.
#pragma once

#include <stdexcept>

#include "core/rooms.hpp"

namespace pipewright::core {

// A bug of our own: the broken condition and where it stands.
class CheckFailed : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// From now on, for the whole process. Where nobody may throw (a destructor, another thread's first function) it still
// ends the process.                                                                   tests/core/check_handler_test.cpp
void throw_where_checks_fail() noexcept;

}  // namespace pipewright::core
