// A line on the terminal for work that takes longer than half a second, and Ctrl-C as a wish instead of an end.
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

// While it lives, SIGINT is remembered instead of ending the program; another one, more than a second later, ends it as
// ever. So is SIGTERM, by which Slurm and the like announce that the time is up, unless something else listens to it
// already.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  bool requested() const;

 private:
  bool terminations_ = false;
};

// While it lives, SIGINT prints the text on standard error and ends the program with status 130, SIGTERM with 143.
class LastWords {
 public:
  explicit LastWords(const std::string& text);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

 private:
  bool terminations_ = false;
};

}  // namespace pipewright
