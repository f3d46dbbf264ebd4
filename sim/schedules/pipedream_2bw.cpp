// PipeDream-2BW: asynchronous 1F1B whose updates take m micro-batches at a time, so that two versions of the weights are
// enough on every stage: a round of m micro-batches runs, forwards and backwards, with the weights before the last update.
// The pipeline never drains, and never waits for an update: from m = K on, the update that a round's first forward needs is
// older than all that is in flight.
//
//   01..aa2bb3ccu4dd5ee.ffu   K = 2, M = 6, m = 3, f = 1, b = 2; u: update
//   .0aa1bb2ccu3dd4ee5ffu..   tests/sim/schedule_pictures_test.cpp
//
// [PipeDream2BW20] section 3.1. Gradients are added up over a round, in one buffer, or in two where they travel to other
// copies next to the following backward.
// No outside oracle: checked by closed form and brute force in tests/sim/schedule_brute_force_test.cpp.
#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

int round_of_2bw(const ScheduleShape& shape) {
  return shape.update_every > 0 ? shape.update_every : shape.stages;
}

std::string pipedream_2bw_refusal(const ScheduleShape& shape) {
  if (shape.vertical_sync)
    return "pipedream_2bw runs a round of micro-batches with one version of the weights on every stage anyway; leave "
           "plan.vertical_sync out";
  if (round_of_2bw(shape) < shape.stages)
    return "pipedream_2bw updates every m micro-batches, as many as stages or more, so that two versions of the "
           "weights "
           "are enough, but plan.update_every is " +
           std::to_string(round_of_2bw(shape)) + " for K = " + std::to_string(shape.stages) + ": use " +
           std::to_string(shape.stages) + " or more";
  return "";
}

Schedule pipedream_2bw_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("pipedream_2bw", shape, false);
  schedule.shape.update_every = round_of_2bw(shape);
  schedule.shape.double_buffered = true;
  for (StageId k = 0; k < shape.stages; ++k) {
    const VirtualStageId v = only_chunk(k);
    Lane& lane = schedule.positions[as<PositionId>(k)];
    one_forward_one_backward(
        shape.micro_batches, shape.stages - 1 - k, [&](int m) { append_forward(lane, v, m); },
        [&](int m) { append_backward(lane, v, m); });
  }
  return schedule;
}

// No flush, so no stage of equal ones idles once the pipeline is full; G rounds take
//     G m (f + b) + (K - 1)(f + b)                                       [PipeDream2BW20] section 3.1
//                                                                  tests/papers/schedule_formulas_test.cpp "PipeDream-2BW"
std::optional<Formula> pipedream_2bw_bubble(const ScheduleShape&) {
  return Formula{"0 in the steady state: no flush", 0, 1};
}

// As 1F1B: min(M, K - k).                                                          [PipeDream2BW20] section 3.1
std::optional<std::int64_t> pipedream_2bw_peak(const ScheduleShape& shape, StageId stage) {
  return std::min(shape.micro_batches, shape.stages - stage);
}

}  // namespace

ScheduleRule pipedream_2bw() {
  return {.name = "pipedream_2bw",
          .title = "asynchronous 1F1B that updates every m micro-batches (PipeDream-2BW)",
          .source = "PipeDream2BW20",
          .memory = "min(M, K-k) micro-batches on stage k",
          .flush = false,
          .compute = pipedream_2bw_schedule,
          .also_refused = pipedream_2bw_refusal,
          .bubble = pipedream_2bw_bubble,
          .peak_in_flight = pipedream_2bw_peak,
          .facts = {.states_round = true}};
}

}  // namespace pipewright::sim
