// `sweep --run`: every point of a grid, run for real.
#pragma once

#include <exception>
#include <string>

#include "core/answers/loss_grid.hpp"
#include "io/read/read_sweep.hpp"

namespace pipewright {

struct TrainedGrid {
  LossGrid grid;              // over processes the losses are rank 0's alone
  std::string ended;          // who was asked to end, or ""
  std::exception_ptr failed;  // what ended all points, once what is there has been shown
};
// Whatever is wrong with one point is said in its row, and the others are run.
TrainedGrid train_grid(const SweepFile& file);

}  // namespace pipewright
