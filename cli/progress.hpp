// A line on the terminal for work that takes longer than half a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
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
  void say(std::string_view text);  // without a bar, where it is not known how much there is to do
  void clear();                     // takes the line away again

 private:
  bool terminal_, shown_ = false;
  std::chrono::steady_clock::time_point begin_, last_;
};

}  // namespace pipewright
