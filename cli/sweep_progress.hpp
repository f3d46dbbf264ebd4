// How far a sweep is: "points [####....] 1200/5000  840/s, 0:04 left, best 7.752 samples/s".
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "cli/progress.hpp"
#include "core/plan/sweep.hpp"

namespace pipewright {

class SweepProgress {
 public:
  explicit SweepProgress(std::int64_t points);  // that are to be priced
  void found(const std::vector<SweepFinding>& findings);

 private:
  ProgressLine line_;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::duration<double> logged_{0};
  std::int64_t points_, done_ = 0, tenths_ = 0;
  double best_ = 0;
  bool terminal_;
};

}  // namespace pipewright
