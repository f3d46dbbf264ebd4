// Looped BFS, breadth-first pipeline parallelism: stage k holds v chunks k, k + K, k + 2K, ..., as in interleaved 1F1B.
// All micro-batches pass through one chunk before the first enters the next; backwards undo that from the end.
//
//   012012...ccbbaaccbbaa   K = 2, v = 2, M = 3, f = 1, b = 2; letters are backwards. More in
//   .012012ccbbaaccbbaa..   tests/sim/schedule_pictures_test.cpp
//
// A chunk's gradients are complete once its M backwards are done, long before the end of the step, and M - K passes hide
// the way from the last stage back to the first. It holds all micro-batches in all chunks for that. [BreadthFirst22]
//
// Backwards take the last micro-batch first, as PyTorch's ScheduleLoopedBFS [PyTorchPP26].
//                                                                               tests/papers/published_orders_test.cpp
#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

std::string looped_bfs_refusal(const ScheduleShape& shape) {
  if (shape.virtual_stages < 2)
    return "looped_bfs with one chunk per stage has nothing to loop over: set plan.virtual_stages: 2 or more, or use "
           "schedule: gpipe";
  return "";
}

Schedule looped_bfs_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("looped_bfs", shape, true);
  const Seating seating = shape.seating();
  const int K = shape.stages, v = shape.virtual_stages, M = shape.micro_batches;
  for (StageId k = 0; k < K; ++k) {
    Lane& lane = schedule.positions[as<PositionId>(k)];
    for (int chunk = 0; chunk < v; ++chunk)
      for (MicroBatchId m = 0; m < M; ++m)
        append_forward(lane, seating.chunk_of(k, chunk), m);
    for (int chunk = v; chunk-- > 0;)
      for (MicroBatchId m = M; m-- > 0;)
        append_backward(lane, seating.chunk_of(k, chunk), m);
  }
  return schedule;
}

// For M >= K micro-batch 0 is back at the first stage before that has done all M, so only fill and drain are idle: K - 1
// steps of a chunk each, in addition to v M of work:
//     bubble = (K - 1) / (v M + K - 1)                                                         [BreadthFirst22]
// K = 4, M = 8, v = 2: 3/19 = 15.8 %.      tests/papers/identities_test.cpp "Looped BFS"
std::optional<Formula> looped_bfs_bubble(const ScheduleShape& shape) {
  if (has_recompute(shape) || shape.micro_batches < shape.stages) return std::nullopt;
  return Formula{"(K-1)/(vM+K-1)", shape.stages - 1,
                 std::int64_t{shape.virtual_stages} * shape.micro_batches + shape.stages - 1};
}

// Every forward is done before the first backward begins:
//     peak = v M chunks                                                                        [BreadthFirst22]
// M = 8, v = 2: 16.                        tests/papers/identities_test.cpp "most micro-batches in flight"
std::optional<std::int64_t> looped_bfs_peak(const ScheduleShape& shape, StageId) {
  return std::int64_t{shape.virtual_stages} * shape.micro_batches;
}

}  // namespace

ScheduleRule looped_bfs() {
  return {.name = "looped_bfs",
          .title = "Looped BFS: v chunks per stage, all micro-batches through one chunk after the other",
          .source = "BreadthFirst22",
          .memory = "vM chunks on every stage",
          .flush = true,
          .compute = looped_bfs_schedule,
          .also_refused = looped_bfs_refusal,
          .bubble = looped_bfs_bubble,
          .peak_in_flight = looped_bfs_peak,
          .facts = {.backward_at_once = false, .takes_chunks = true, .pytorch = "LoopedBFS"},
          .bounded_in_flight = false,
          .leaner = "interleaved_1f1b",
          .searched = 0};  // unasked, `plan` tries interleaved_1f1b, which holds less
}

}  // namespace pipewright::sim
