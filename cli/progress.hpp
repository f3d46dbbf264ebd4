// A line on the terminal for work that takes longer than half a second, and Ctrl-C as a wish instead of an end.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace pipewright {

// On standard error, and only where that is a terminal: "layouts [##....] 1200/38156  best 7.75 samples/s".
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool due() const;  // whether `show` would show anything now
  void show(std::string_view what, std::int64_t done, std::int64_t all, std::string_view more);
  void clear();  // takes the line away again

 private:
  bool terminal_, shown_ = false;
  std::chrono::steady_clock::time_point begin_, last_;
};

// While it lives, SIGINT is remembered instead of ending the program; a second one ends it as ever.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  bool requested() const;
};

}  // namespace pipewright
