// Losses of real runs over the points of a sweep: how schedules train, beside how fast they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/answers/sweep.hpp"

namespace pipewright::core {

// A stretch of a run: samples that had been trained on at its end, and the mean loss over it.
struct LossWindow {
  std::int64_t samples = 0;
  double loss = 0;
};

struct LossRow {
  std::int64_t point = 0;
  std::vector<LossWindow> windows;
  std::string failed;  // why it ended early ("" when it did not): its windows are those until then
};

struct LossGrid {
  SweepQuestion question;
  std::vector<LossRow> rows;  // by point
  std::int64_t not_run = 0;   // when it was interrupted
};

// Losses of the first of `steps` steps as windows of equal length, give or take one step: step s is in window
// s * count / steps, count = min(most, steps). Those that the losses do not fill are left out.
std::vector<LossWindow> loss_windows(const std::vector<double>& losses, std::size_t steps,
                                     std::int64_t samples_per_step, std::size_t most = 20);

// The runs of one variant at one place of the grid that differ in their seed alone.
struct LossCurve {
  std::size_t variant = 0;
  std::vector<std::size_t> values;  // of the axes other than the seed's
  struct At {
    std::int64_t samples = 0;
    double mean = 0, least = 0, largest = 0;
    int runs = 0;  // that came this far
  };
  std::vector<At> at;
  int runs = 0, failed = 0;
};

constexpr std::string_view kSeedKey = "run.seed";
// Numbers of the axes other than the seed's.
std::vector<std::size_t> axes_beside_seed(const SweepQuestion& question);
// By place of the grid, then variant.
std::vector<LossCurve> loss_curves(const LossGrid& grid);

}  // namespace pipewright::core
