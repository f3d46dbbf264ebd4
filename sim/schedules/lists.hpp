// What the generators share: the passes, the order 1F1B as a pure function, and refusals.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/schedule.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::sim {

// A worker of a stage of one chunk, and the micro-batches that it runs.
struct Seat {
  Seating seating;
  StageId stage = 0;
  int replica = 0;
  int count = 0;  // micro-batches that it runs, of the M of its copy

  VirtualStageId chunk() const { return seating.chunk_of(stage, 0); }
  MicroBatchId micro_batch(int i) const { return static_cast<MicroBatchId>(seating.micro_batch(chunk(), replica, i)); }
};

// The chunk of a stage that holds one.
constexpr VirtualStageId only_chunk(StageId stage) {
  return as<VirtualStageId>(stage);
}

// Of two chunks on each stage, there and back.
constexpr Seating v_seating(int stages) {
  return {.stages = stages, .virtual_stages = 2, .chunk_order = ChunkOrder::V};
}

// All seats of one copy, in the order of positions. The shape must stay as it is meanwhile.
std::vector<Seat> seats(const ScheduleShape& shape);

// A schedule of that name with an empty lane per seat.
Schedule empty_schedule(std::string_view name, const ScheduleShape& shape, bool flush);

void append_forward(Lane& lane, VirtualStageId v, MicroBatchId m);

// BW(v,m); and in two ops B(v,m) and W(v,m).
void append_backward(Lane& lane, VirtualStageId v, MicroBatchId m);
void append_input_backward(Lane& lane, VirtualStageId v, MicroBatchId m);
void append_weights(Lane& lane, VirtualStageId v, MicroBatchId m);

// Stage k in 1F1B's order, `warm_up` forwards ahead, with its backwards in two ops: the W of a micro-batch directly after
// the B of the one `late` behind it.                                                        [ZeroBubble23] section 2
void append_split_backwards(const ScheduleShape& shape, Lane& lane, StageId k, int warm_up, int late);

// Every worker fills the pipeline with in_flight - 1 forwards, then runs a forward and a backward in turns.
Schedule in_turns(std::string_view name, const ScheduleShape& shape, bool flush);

// By worker the F, B, W and BW of `ops`, in that order.
Schedule schedule_of_lists(std::string_view name, const ScheduleShape& shape, const std::vector<std::vector<Op>>& ops);

// Micro-batches in flight on one replica of stage k that keep a pipeline of replicated stages busy: enough for every
// worker from this stage to the end to have one.
//     n_k = ceil(sum_{j >= k} r_j / r_k)                                 [PipeDream19] section 3.2 (NOAM at stage 0)
// replicas 15-1: n_0 = ceil(16/15) = 2, n_1 = 1; no replicas: n_k = K - k.
//                                                             tests/sim/schedule_orders_test.cpp "15-1"
int in_flight(const ScheduleShape& shape, StageId stage);

// `warm_up` forwards, then one forward and one backward in turns, then the backwards that are left. i counts the
// micro-batches of one worker: forward(i) and backward(i) are called for 0 .. count-1, each in ascending order.
template <class Forward, class Backward>
void one_forward_one_backward(int count, int warm_up, Forward&& forward, Backward&& backward) {
  const int warm = std::min(warm_up, count);
  for (int i = 0; i < warm; ++i)
    forward(i);
  for (int i = warm; i < count; ++i)
    forward(i), backward(i - warm);
  for (int i = count - warm; i < count; ++i)
    backward(i);
}

// (K - 1) idle / (M (f + b + w) + (K - 1) idle), of a step with so much idle time for each stage but one.
Formula idle_share(std::string_view text, const ScheduleShape& shape, const PassTimes& times, std::int64_t idle);

// Nonsense, too many ops for memory, or chunks that lie in another order; "" where there is nothing to refuse.
std::string shape_refusal(const ScheduleShape& shape, ChunkOrder order);
bool has_replicas(const ScheduleShape& shape);
bool has_recompute(const ScheduleShape& shape);

}  // namespace pipewright::sim
