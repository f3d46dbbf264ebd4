// ZB-H2: ZB-H1 with twice the warm-up and the Ws twice as late, so that no stage waits between its first forward and
// its last W. It holds 2 K - 1 micro-batches for that.
//
//   01234aw5bwcwdwewfw..   K = 3, M = 6, f = b = w = 1: 2 (K - 1 - k) forwards of warm-up, then a forward, a B and the W
//   .012a3b4cw5dwewfwww.   of 2 k micro-batches before in turns. More in tests/sim/schedule_pictures_test.cpp
//   ..0a1b2c3d4ew5fwwwww
//
// [ZeroBubble23] section 2.2, by the authors' get_hand_schedule. Its optimizer step is not checked across stages but
// validated afterwards, so that steps overlap as parallelograms; here all stages wait for the flush, as everywhere.
// Its four published bubble rates come out to all four decimals: tests/papers/zero_bubble_test.cpp
#include <algorithm>

#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

Schedule zb_h2_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("zb_h2", shape, true);
  for (StageId k = 0; k < shape.stages; ++k) {
    Lane& lane = schedule.positions[as<PositionId>(k)];
    append_split_backwards(shape, lane, k, 2 * (shape.stages - 1 - k), 2 * k);
  }
  return schedule;
}

// For M >= 2 K - 1 and w <= min(f, b), equal stages and free communication, a stage takes M (f + b + w) from its first
// op to its last where b <= 2 w, and the last one begins (K - 1) f late:
//     M (f + b + w) + (K - 1) f                                               derived from [ZeroBubble23] section 2.3
// K = 4, M = 8, f = b = w = 1: 27, no less than ZB-H1.                   tests/papers/zero_bubble_test.cpp "ZB-H2"
std::optional<Formula> zb_h2_bubble(const ScheduleShape& shape, const PassTimes& times) {
  const std::int64_t f = times.forward, b = times.input_gradient, w = times.weight_gradient;
  if (shape.micro_batches < 2 * shape.stages - 1 || w > std::min(f, b) || b - w > w) return std::nullopt;
  return idle_share("(K-1)f/(M(f+b+w)+(K-1)f)", shape, times, f);
}

// 2 (K - 1 - k) ahead, the one at work, and the 2 k that wait for their W:
//     peak = min(M, 2 K - 1)                                                       [ZeroBubble23] section 2.3, table 2
std::optional<std::int64_t> zb_h2_peak(const ScheduleShape& shape, StageId) {
  return std::min(shape.micro_batches, 2 * shape.stages - 1);
}

}  // namespace

ScheduleRule zb_h2() {
  return {.name = "zb_h2",
          .title = "ZB-H1 with a warm-up twice as deep: no stage waits once it has begun (ZB-H2)",
          .source = "ZeroBubble23",
          .memory = "min(M, 2K-1) micro-batches on every stage",
          .flush = true,
          .splits_backward = true,
          .compute = zb_h2_schedule,
          .peak_in_flight = zb_h2_peak,
          .bubble_of_times = zb_h2_bubble,
          .searched = 0};  // as ZB-H1: unasked, `plan` tries orders of whole backwards
}

}  // namespace pipewright::sim
