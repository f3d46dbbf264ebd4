// Seq1F1B: 1F1B whose passes are slices of a sequence. A micro-batch is cut into Q of them: its forwards run from the
// first slice to the last, since later tokens read the keys and values of earlier ones, and its backwards from the last
// to the first. The pipeline fills after a slice, and a stage holds slices in place of whole micro-batches.
//
//   012..bb3aa.ddcc   K = 2, M = 2, Q = 2, f = 1, b = 2 of a slice: slices 0 and 1 are of the first micro-batch
//   .01bb2aa3ddcc..   tests/sim/schedule_pictures_test.cpp
//
// [Seq1F1B24] section 3; the order is that of the authors' scheduler (tests/papers/published_orders_test.cpp). Slices of
// causal attention take equally long where they are cut by FLOPs, the later ones shorter (section 3.3); of equal tokens the
// later ones take longer: core/cost/slices.hpp.
#include <algorithm>

#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

std::string seq1f1b_refusal(const ScheduleShape& shape) {
  if (shape.recompute_except_last)
    return "seq1f1b runs the slices of the last micro-batch apart; leave plan.recompute_except_last out";
  return "";
}

int seq_warm_up(const ScheduleShape& shape, StageId k) {
  return std::min(shape.micro_batches, shape.stages - 2 - k + shape.slices);
}

// The shape counts slices as micro-batches: u = m Q + q.
Schedule seq1f1b_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("seq1f1b", shape, true);
  const int Q = shape.slices;
  for (StageId k = 0; k < shape.stages; ++k) {
    const VirtualStageId v = only_chunk(k);
    Lane& lane = schedule.positions[as<PositionId>(k)];
    one_forward_one_backward(
        shape.micro_batches, seq_warm_up(shape, k), [&](int u) { append_forward(lane, v, u); },
        [&](int u) { append_backward(lane, v, u / Q * Q + Q - 1 - u % Q); });
  }
  return schedule;
}

// The first Q slices fill the pipeline as a micro-batch of 1F1B does, and drain it:
//     (K - 1) / (M Q + K - 1)                                                             [Seq1F1B24] section 3.2
// K = 4, M = 4, Q = 2, f = 1, b = 2 of a slice: 33 in all, 24 of them work.    tests/papers/schedule_formulas_test.cpp "Seq1F1B"
std::optional<Formula> seq1f1b_bubble(const ScheduleShape& shape) {
  if (has_recompute(shape)) return std::nullopt;
  return Formula{"(K-1)/(MQ+K-1)", shape.stages - 1, std::int64_t{shape.micro_batches} + shape.stages - 1};
}

// K - 1 - k + Q slices, each a Q-th of a micro-batch.                                    [Seq1F1B24] section 3.2
std::optional<std::int64_t> seq1f1b_peak(const ScheduleShape& shape, StageId stage) {
  return std::min(shape.micro_batches, seq_warm_up(shape, stage) + 1);
}

}  // namespace

ScheduleRule seq1f1b() {
  return {.name = "seq1f1b",
          .title = "1F1B by slices of a sequence, Q of each micro-batch (Seq1F1B)",
          .source = "Seq1F1B24",
          .memory = "min(MQ, K-1-k+Q) slices on stage k, each a Q-th of a micro-batch",
          .flush = true,
          .compute = seq1f1b_schedule,
          .also_refused = seq1f1b_refusal,
          .bubble = seq1f1b_bubble,
          .peak_in_flight = seq1f1b_peak,
          .facts = {.states_slices = true}};
}

}  // namespace pipewright::sim
