// How a process ends before its work is done, because it was asked to: by Ctrl-C, a batch system, a closed terminal.
// One guard catches the signals (runtime/signals.hpp). The rooms that work know this much of it:
//
//     asked_to_end()   loops that take long look at it between two pieces, and end with what they have found
//     ClearedAtEnd     what must not stay behind: a half-written file, a child process
//
// Tests: tests/core/ending_test.cpp, tests/runtime/signals_test.cpp
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "core/rooms.hpp"

namespace pipewright::core {

int asked_to_end() noexcept;           // the signal; 0: nobody has asked
void ask_to_end(int signal) noexcept;  // by the guard, and by tests, which take it back with 0
std::string signal_name(int signal);   // "SIGTERM", "signal 64"
std::string interrupted_by();          // "interrupted (SIGTERM)"

// Work that was ended since the process was asked to; what it says follows "interrupted (SIGTERM): ".
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
void end_if_asked(const std::string& what);  // throws Interrupted

// Something outside this process that has to go should the process end now. While this lives it is taken away by
// `clear_at_end`; afterwards it is gone already, or has found its place.
class ClearedAtEnd {
 public:
  // `make` makes it: nothing is made that is not known here. `clear` takes it away and throws nothing.
  ClearedAtEnd(const std::function<void()>& make, std::function<void()> clear);
  ~ClearedAtEnd();
  ClearedAtEnd(const ClearedAtEnd&) = delete;
  ClearedAtEnd& operator=(const ClearedAtEnd&) = delete;

 private:
  std::function<void()> clear_;
};

// Takes all of it away, the newest first. The last thing before the process ends: whoever wants to make, or has done
// with, one of them afterwards waits for ever.
void clear_at_end() noexcept;

}  // namespace pipewright::core
