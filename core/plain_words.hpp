// What the standard library and the operating system call an error, in words for whoever typed the command. Their own
// texts stop here: "Success" of a call that failed without a number, "Resource temporarily unavailable" of a thread
// that could not be started, "vector::_M_range_check: ..." of a fault in this program.
//
// Tests: tests/core/plain_words_test.cpp
#pragma once

#include <exception>
#include <string>

#include "core/rooms.hpp"

namespace pipewright::core {

// Of an errno: "No such file or directory", "no answer came in time".
std::string system_words(int error);

// Our own errors as they are; the library's rephrased, with a way out.
std::string plain_words(const std::exception& error);

}  // namespace pipewright::core
