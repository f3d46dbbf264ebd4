// What the program shows: standard output with its failures noticed, notes and progress on standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "core/rooms.hpp"

namespace pipewright::io {

// Exit statuses, as of grep and diff. A signal's are 128 + its number (runtime/signals.hpp).
constexpr int kDone = 0;      // done, or yes
constexpr int kNo = 1;        // the answer is no: the plan does not fit
constexpr int kBadInput = 2;  // bad usage, bad input, or a failure

// Writes to standard output, at once: what was printed stays printed where a signal ends the program.
void print(std::string_view text);
// One line on standard error.
void note(std::string_view line);

// Ends the output of a run that would exit with `status`. A reader that went away (`| head`) is no error; anything else
// (a full disk) prints one message and makes the status 2.
int flush_output(int status);

// From now on notes and progress are not shown: in a process whose terminal is another program's.
void keep_quiet();

// A line on the terminal for work that takes longer than half a second. On standard error, and only where that is a
// terminal: "layouts [##....] 1200/38156  best 7.75 samples/s".
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool due() const;  // whether `show` would show anything now
  void show(std::string_view what, std::int64_t done, std::int64_t all, std::string_view more);
  void say(std::string_view text);  // without a bar, where it is not known how much there is to do
  void clear();                     // takes the line away again

 private:
  bool terminal_, shown_ = false;
  std::chrono::steady_clock::time_point begin_, last_;
};

}  // namespace pipewright::io
