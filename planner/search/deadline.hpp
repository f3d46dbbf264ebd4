// When a search ends before it is through: its time is up, or somebody asks it to end. The same for every search.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "core/answers/ranking.hpp"

namespace pipewright::planner {

class Deadline {
 public:
  // time_limit: seconds from now on. stop: true asks to end; may be empty.
  Deadline(double time_limit, std::function<bool()> stop)
      : time_limit_(time_limit), stop_(std::move(stop)), begin_(std::chrono::steady_clock::now()) {}

  // Once over, over.
  bool over() {
    if (ended_ == Ended::No && left() <= 0) ended_ = Ended::TimeLimit;
    return ended_ != Ended::No || asked_to_stop();
  }
  // The same without a look at the clock.
  bool asked_to_stop() {
    if (ended_ == Ended::No && stop_ && stop_()) ended_ = Ended::Interrupted;
    return ended_ == Ended::Interrupted;
  }
  double left() const {  // seconds
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
    return time_limit_ - passed.count();
  }
  Ended ended() const { return ended_; }

 private:
  double time_limit_;
  std::function<bool()> stop_;
  std::chrono::steady_clock::time_point begin_;
  Ended ended_{};
};

inline double steady_seconds() {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  return now.count();
}

// One limit that holds for several searches together: what one leaves is there for those behind it.
class SharedLimit {
 public:
  // `clock`: seconds; empty: steady_seconds.
  SharedLimit(double seconds, std::function<double()> clock)
      : clock_(clock ? std::move(clock) : steady_seconds), end_(clock_() + seconds) {}

  // Seconds of the next of `searches` that are to come.
  double share(int searches) const { return std::max(0.0, end_ - clock_()) / std::max(1, searches); }

 private:
  std::function<double()> clock_;
  double end_;
};

}  // namespace pipewright::planner
