// The order that DualPipe and DualPipeV share: a worker has two chunks, each with micro-batches of its own, and in the
// middle of the step the forward of one is made to overlap with the backward of the other.      [DeepSeekIII24] section 3.2.1
#pragma once

#include <array>

#include "sim/schedules/lists.hpp"

namespace pipewright::sim {

// One of the two chunks of a worker, with the micro-batches that it runs there: first, first + 1, ...
struct DualPhase {
  VirtualStageId chunk = 0;
  MicroBatchId first = 0;
};

// Both run `count` micro-batches. `depth`: workers from here to the middle of the pipeline, this one not counted, of
// `half` in all; count >= 2 half.
void append_dualpipe(Lane& lane, const std::array<DualPhase, 2>& phases, int count, int depth, int half);

}  // namespace pipewright::sim
