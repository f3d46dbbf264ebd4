// How schedules train: the losses of a grid of real runs.
#pragma once

#include <string>

#include "core/answers/loss_grid.hpp"

namespace pipewright::io {

// Mean loss of the last window over the seeds, with the least and the largest: a row per place of the grid, a column
// per variant.
std::string losses_text(const LossGrid& grid, int width);
// A line per run and window: variant, every key of the grid, samples, loss, failed.
std::string losses_csv(const LossGrid& grid);
// Schema pipewright.losses/1.   docs/reference/command-line.md
std::string losses_json(const LossGrid& grid);
// A panel per place of the grid (the last key to the right), a line per variant: the mean over the seeds, and the range
// that they span as a band. All panels have one scale.
std::string losses_svg(const LossGrid& grid);

}  // namespace pipewright::io
