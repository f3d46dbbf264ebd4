// Naive model parallelism: one micro-batch in the whole pipeline at a time, all workers but one idle.
//
//   0......aa1......bb     K = 3, M = 2, f = 1, b = 2; letters are backwards. More in
//   .0...aa...1...bb..     tests/sim/schedule_pictures_test.cpp
//   ..0aa......1bb....
#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

Schedule naive_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("naive", shape, true);
  for (StageId k = 0; k < shape.stages; ++k) {
    const VirtualStageId v = only_chunk(k);
    Lane& lane = schedule.positions[as<PositionId>(k)];
    for (MicroBatchId m = 0; m < shape.micro_batches; ++m) {
      append_forward(lane, v, m);
      append_backward(lane, v, m);
    }
  }
  return schedule;
}

// One worker of K computes at any time:
//     bubble = (K - 1) / K                                    [GPipe19] section 1, "under-utilization" (M = 1 of below)
// K = 4: 3/4 = 75 %.                       tests/papers/identities_test.cpp "naive model parallelism"
std::optional<Formula> naive_bubble(const ScheduleShape& shape) {
  if (has_recompute(shape)) return std::nullopt;
  return Formula{"(K-1)/K", shape.stages - 1, shape.stages};
}

std::optional<std::int64_t> naive_peak(const ScheduleShape&, StageId) {
  return 1;
}

}  // namespace

ScheduleRule naive() {
  return {.name = "naive",
          .title = "naive model parallelism: one micro-batch at a time",
          .source = "GPipe19",
          .memory = "1 micro-batch on every stage",
          .flush = true,
          .compute = naive_schedule,
          .bubble = naive_bubble,
          .peak_in_flight = naive_peak,
          .one_stage_at_a_time = true,
          .on_one_stage = "1f1b"};
}

}  // namespace pipewright::sim
