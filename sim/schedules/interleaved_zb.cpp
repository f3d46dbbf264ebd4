// Interleaved zero bubble: interleaved 1F1B with its backwards in two ops and a warm-up shorter by K - 1 - k, whose place
// the weights' gradients of earlier micro-batches take: stage k begins with them after k + 1 backwards.
//
//   0101.aw2bw3aw2bw3cwdwcwdw   K = 2, v = 2, M = 4, f = b = w = 1: chunks 0 and 2 on stage 0, 1 and 3 on stage 1
//   .010a1bw2aw3bw2cw3dwcwdww   tests/sim/schedule_pictures_test.cpp
//
// The order is that of PyTorch's ScheduleInterleavedZeroBubble [PyTorchPP26], which goes through the chunks in groups of
// g = M / max(1, M div K) micro-batches.                                     tests/papers/published_orders_test.cpp
#include <algorithm>

#include "core/units.hpp"
#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

int interleaved_zb_rounds(const ScheduleShape& shape) {
  return std::max(1, shape.micro_batches / shape.stages);
}

// Micro-batches that go through a chunk before the first of them enters the next.
int interleaved_zb_group(const ScheduleShape& shape) {
  return shape.micro_batches / interleaved_zb_rounds(shape);
}

// No overflow: the ops of a worker fit memory (shape_refusal).
int interleaved_zb_warm_up(const ScheduleShape& shape, StageId stage) {
  return std::min(shape.virtual_stages * shape.micro_batches,
                  (shape.virtual_stages - 1) * interleaved_zb_group(shape) + shape.stages - 1 - stage);
}

std::string interleaved_zb_refusal(const ScheduleShape& shape) {
  if (shape.virtual_stages < 2)
    return "interleaved_zb with one chunk per stage has nothing to interleave: set plan.virtual_stages: 2 or more, or "
           "use schedule: zb_h1";
  const int M = shape.micro_batches, in = interleaved_zb_rounds(shape);
  if (M % in != 0)
    return "interleaved_zb takes micro-batches through the chunks in M div K = " + std::to_string(in) +
           " groups of one size, but M = " + std::to_string(M) + " is not a multiple of that: use " +
           std::to_string(M / shape.stages * shape.stages);
  return "";
}

Schedule interleaved_zb_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("interleaved_zb", shape, true);
  const Seating seating = shape.seating();
  const int K = shape.stages, v = shape.virtual_stages, g = interleaved_zb_group(shape), ops = v * shape.micro_batches;
  // The i-th op of a worker, forward, is on this of its chunks; backward on the one as far from the end.
  const auto chunk = [&](int i) { return i / g % v; };
  const auto micro_batch = [&](int i) { return i / (g * v) * g + i % g; };
  for (StageId k = 0; k < K; ++k) {
    Lane& lane = schedule.positions[as<PositionId>(k)];
    const auto back = [&](int i) { return seating.chunk_of(k, v - 1 - chunk(i)); };
    int late = 0;
    const auto weights = [&] { append_weights(lane, back(late), micro_batch(late)), ++late; };
    one_forward_one_backward(
        ops, interleaved_zb_warm_up(shape, k),
        [&](int i) { append_forward(lane, seating.chunk_of(k, chunk(i)), micro_batch(i)); },
        [&](int i) {
          append_input_backward(lane, back(i), micro_batch(i));
          if (i >= k) weights();
        });
    while (late < ops)
      weights();
  }
  return schedule;
}

// Equal passes: fill and drain are K - 1 forwards, whatever v is:
//     (K - 1) / (3 v M + K - 1)                          as ZB-H1 in steps of a chunk, [ZeroBubble23] section 2
// K = 4, M = 8, v = 2: 51 in all, 48 of them work.      tests/papers/zero_bubble_test.cpp "interleaved zero bubble"
std::optional<Formula> interleaved_zb_bubble(const ScheduleShape& shape, const PassTimes& times) {
  if (!times.equal() || shape.micro_batches < shape.stages) return std::nullopt;
  const std::int64_t work = checked_product(3 * std::int64_t{shape.virtual_stages}, shape.micro_batches, "the work");
  return Formula{"(K-1)/(3vM+K-1)", shape.stages - 1, checked_sum(work, shape.stages - 1, "the step")};
}

// The warm-up, the k + 1 forwards and backwards before the first W:
//     peak = min(v M, (v - 1) g + K) chunks on every stage; K divides M: v K
// K = 4, M = 8, v = 2: 8.                               tests/papers/identities_test.cpp "most micro-batches in flight"
std::optional<std::int64_t> interleaved_zb_peak(const ScheduleShape& shape, StageId) {
  const std::int64_t v = shape.virtual_stages;
  return std::min<std::int64_t>(v * shape.micro_batches, (v - 1) * interleaved_zb_group(shape) + shape.stages);
}

}  // namespace

ScheduleRule interleaved_zb() {
  return {.name = "interleaved_zb",
          .title = "interleaved 1F1B whose backwards are split, so that W fills the bubble",
          .source = "PyTorchPP26",
          .memory = "min(vM, (v-1)g+K) chunks on every stage, g = M / (M div K)",
          .flush = true,
          .splits_backward = true,
          .compute = interleaved_zb_schedule,
          .also_refused = interleaved_zb_refusal,
          .peak_in_flight = interleaved_zb_peak,
          .bubble_of_times = interleaved_zb_bubble,
          .facts = {.takes_chunks = true, .groups_of_stages = true, .pytorch = "InterleavedZeroBubble"},
          .searched = 0};  // as ZB-H1
}

}  // namespace pipewright::sim
