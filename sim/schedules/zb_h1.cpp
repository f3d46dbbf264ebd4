// ZB-H1: 1F1B whose backward is two ops, B for the gradient of the input, which the stage before waits for, and W for
// that of the weights, which nobody waits for. Stage k does the W of a micro-batch k backwards later: the Ws fill the
// drain of the later stages, and no stage holds more than 1F1B's first one.
//
//   012..aw3bwcwdw   K = 3, M = 4, f = b = w = 1: 1F1B's warm-up of K - 1 - k forwards, then a forward, a B and the W
//   .01.a2bw3cwdww   of k micro-batches before in turns. More in tests/sim/schedule_pictures_test.cpp
//   ..0a1b2cw3dwww
//
// [ZeroBubble23] section 2.2. Its four published bubble rates come out to all four decimals:
// tests/papers/zero_bubble_test.cpp
#include <algorithm>

#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

Schedule zb_h1_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("zb_h1", shape, true);
  for (StageId k = 0; k < shape.stages; ++k) {
    Lane& lane = schedule.positions[as<PositionId>(k)];
    append_split_backwards(shape, lane, k, shape.stages - 1 - k, k);
  }
  return schedule;
}

// For M >= K and w <= min(f, b), equal stages and free communication, the step takes
//     M (f + b + w) + (K - 1)(f + b - w)                                           [ZeroBubble23] section 2.3
// of which the second term is idle. K = 4, M = 8, f = b = w = 1: 27, where 1F1B takes 33, and a bubble of 3/27 = 1/9.
// tests/papers/zero_bubble_test.cpp "ZB-H1", tests/planner/answer_test.cpp "ZB-H1's bubble"
std::optional<Formula> zb_h1_bubble(const ScheduleShape& shape, const PassTimes& times) {
  const std::int64_t f = times.forward, b = times.input_gradient, w = times.weight_gradient;
  if (shape.micro_batches < shape.stages || w > std::min(f, b)) return std::nullopt;
  return idle_share("(K-1)(f+b-w)/(M(f+b+w)+(K-1)(f+b-w))", shape, times, f + b - w);
}

// 1F1B's K - k, and the k that wait for their W:
//     peak = min(M, K)                                                             [ZeroBubble23] section 2.2
std::optional<std::int64_t> zb_h1_peak(const ScheduleShape& shape, StageId) {
  return std::min(shape.micro_batches, shape.stages);
}

}  // namespace

ScheduleRule zb_h1() {
  return {.name = "zb_h1",
          .title = "1F1B with the weight gradients postponed into the drain (ZB-H1)",
          .source = "ZeroBubble23",
          .memory = "min(M, K) micro-batches on every stage",
          .flush = true,
          .splits_backward = true,
          .compute = zb_h1_schedule,
          .peak_in_flight = zb_h1_peak,
          .bubble_of_times = zb_h1_bubble};
}

}  // namespace pipewright::sim
