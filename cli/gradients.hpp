// Gradients of the first step of a run, and how far those of two runs lie apart.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cli/real_run.hpp"

namespace pipewright {

using Gradients = std::vector<std::vector<float>>;  // by virtual stage, laid out as ChunkCode::parameters

// Of one step, before the update. Over processes rank 0 has them all, others nothing. Throws RunFailed, OutOfArena.
Gradients pipelined_gradients(const RealRun& run, RunSettings settings);

struct Difference {
  std::size_t values = 0, differing = 0;
  double relative = 0;  // ||got - reference||_2 / ||reference||_2; of a reference that is zero: 0 or infinity
};
// Values that `got` lacks count as zero.
Difference difference(std::span<const float> got, std::span<const float> reference);

}  // namespace pipewright
