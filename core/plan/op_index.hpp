// Where the ops of a micro-batch stand in their worker's list: the way from a message to the op that sends or needs it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ids.hpp"
#include "core/plan/schedule.hpp"

namespace pipewright::core {

// One pass over the lists; look-ups are O(1). The worker is known from (v, m) alone (core/plan/seating.hpp), so one number per
// virtual stage and micro-batch is enough. The schedule must be valid.
class OpIndex {
 public:
  explicit OpIndex(const Schedule& schedule);
  OpIndex(const Schedule& schedule, PositionId only);  // knows the ops of one position

  // Place in Lane::compute of F(v,m), or -1.
  int forward(VirtualStageId v, MicroBatchId m) const { return forward_[at(v, m)]; }
  // Place of the op that needs the gradient of (v,m)'s output: B or BW; or -1.
  int backward(VirtualStageId v, MicroBatchId m) const { return backward_[at(v, m)]; }

 private:
  std::size_t at(VirtualStageId v, MicroBatchId m) const {
    return static_cast<std::size_t>(v) * micro_batches_ + static_cast<std::size_t>(m);
  }
  void add(const Lane& lane);

  std::size_t micro_batches_;
  std::vector<std::int32_t> forward_, backward_;
};

// True where (v, m) keeps only its boundary and R rebuilds the rest: the stage recomputes and m is not the last
// micro-batch of torchgpipe's `except_last`.
inline bool recomputed(const ScheduleShape& shape, VirtualStageId v, MicroBatchId m) {
  return shape.recomputes(shape.stage_of(v)) && !(shape.recompute_except_last && m + 1 == shape.micro_batches);
}

}  // namespace pipewright::core
