// GEMS: two copies of the model in opposite directions over the same K workers. One micro-batch goes down, the next one
// up: its forward follows the backward of the one before it from worker to worker. Hardly any two workers ever work at
// once, and each holds one micro-batch.
//
//   0.........aa1bb......   K = 4, M = 2, f = 1, b = 2: 0 goes down, 1 up
//   .0......aa1....bb....   tests/sim/schedule_pictures_test.cpp
//   ..0...aa1........bb..
//   ...0aa1............bb
//
// [GEMS20]; gradients of a stage are summed over its two workers at the end of the step.
// No outside oracle: checked by closed form and brute force in tests/sim/schedule_brute_force_test.cpp.
#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

std::string gems_refusal(const ScheduleShape& shape) {
  if (shape.recompute_except_last)
    return "gems has two last micro-batches, one each way; leave plan.recompute_except_last out";
  return "";
}

Schedule gems_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("gems", shape, true);
  const Seating seating = shape.seating();
  for (StageId k = 0; k < shape.stages; ++k)
    for (MicroBatchId m = 0; m < shape.micro_batches; ++m) {
      const VirtualStageId v = seating.chunk_of(k, seating.holder_of(0, m));
      append_forward(schedule.positions[as<PositionId>(k)], v, m);
      append_backward(schedule.positions[as<PositionId>(k)], v, m);
    }
  return schedule;
}

// Equal stages, free communication: all stages one after the other, but for the first forward of the next micro-batch,
// which its worker runs while the gradient goes on:
//     step = (K - 1) f + M (K b + f),     long runs with b = 2 f: bubble (K - 1) / (K + 1/2)     [Chimera21] table 2
// K = 4, M = 2, b = 2 f: 21 in all, 6 of them work.                            tests/papers/schedule_formulas_test.cpp "GEMS"
std::optional<Formula> gems_bubble(const ScheduleShape& shape, const PassTimes& times) {
  const std::int64_t K = shape.stages, M = shape.micro_batches, f = times.forward;
  const std::int64_t b = times.input_gradient + times.weight_gradient;
  if (has_recompute(shape) || b < f) return std::nullopt;
  return Formula{"(K-1)(f+Mb)/((K-1)f+M(Kb+f))", (K - 1) * (f + M * b), (K - 1) * f + M * (K * b + f)};
}

std::optional<std::int64_t> gems_peak(const ScheduleShape&, StageId) {
  return 1;
}

}  // namespace

ScheduleRule gems() {
  return {.name = "gems",
          .title = "two copies of the model in opposite directions, a micro-batch in each in turn (GEMS)",
          .source = "GEMS20",
          .memory = "1 micro-batch on every stage",
          .flush = true,
          .compute = gems_schedule,
          .also_refused = gems_refusal,
          .peak_in_flight = gems_peak,
          .bubble_of_times = gems_bubble,
          .chunk_order = ChunkOrder::Alternate};
}

}  // namespace pipewright::sim
