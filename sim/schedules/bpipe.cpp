// BPipe: 1F1B in whose memory stages help one another. A stage near the front holds many micro-batches, its partner at
// the other end few: stage k sends activations over its limit to stage K - 1 - k right after their forward, and has each
// back before its backward. No compute op changes its place.
//
//   012.3.....aa4bb5cc..dd..ee..ff   K = 4, M = 6, f = 1, b = 2, moves of 1: stage 0 as in 1F1B but for forward 3,
//   ...>.........>                   which waits until 2 is gone. It holds 3 in place of 4: 2 and 4 wait at stage 3
//   ...............<....<
//
// [BPipe23] sections 3.1, 3.2. Moves take the link between the two, next to the messages there. A forward waits for the
// moves before it, so that its stage holds no more than it may; bytes count on both sides while a move is on its way.
// No outside oracle: checked by closed form and brute force in tests/sim/schedule_brute_force_test.cpp, what is moved and the
// memory of both sides included.
#include <algorithm>
#include <string>

#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

// One is computed, one waits for its backward, and one comes back under it.
constexpr int kLeast = 3;

// Half of the K + 1 micro-batches that two partners hold in 1F1B, and one that is computed.     [BPipe23] section 3.1
int bpipe_limit(const ScheduleShape& shape) {
  return shape.most_in_flight > 0 ? shape.most_in_flight : std::max(kLeast, (shape.stages + 3) / 2);
}

std::string bpipe_refusal(const ScheduleShape& shape) {
  if (shape.most_in_flight > 0 && shape.most_in_flight < std::min(kLeast, shape.micro_batches))
    return "bpipe needs room for " + std::to_string(kLeast) +
           " micro-batches on a stage: one is computed, one waits for its backward, one comes back meanwhile; use "
           "plan.most_in_flight: " +
           std::to_string(kLeast) + " or more";
  return "";
}

Schedule bpipe_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("bpipe", shape, true);
  schedule.shape.most_in_flight = bpipe_limit(shape);
  for (StageId k = 0; k < shape.stages; ++k) {
    const VirtualStageId v = only_chunk(k);
    Lane& lane = schedule.positions[as<PositionId>(k)];
    one_forward_one_backward(
        shape.micro_batches, shape.stages - k - 1, [&](int m) { append_forward(lane, v, m); },
        [&](int m) { append_backward(lane, v, m); });
  }
  return schedule;
}

// As 1F1B's where moves are hidden: (K - 1) / (M + K - 1).                                   [DAPPLE20] section 2
std::optional<Formula> bpipe_bubble(const ScheduleShape& shape) {
  if (has_recompute(shape)) return std::nullopt;
  return Formula{"(K-1)/(M+K-1)", shape.stages - 1, std::int64_t{shape.micro_batches} + shape.stages - 1};
}

std::optional<std::int64_t> bpipe_peak(const ScheduleShape& shape, StageId k) {
  const int own = std::min(shape.micro_batches, shape.stages - k);
  return 2 * k < shape.stages - 1 ? std::min(own, bpipe_limit(shape)) : own;
}

}  // namespace

ScheduleRule bpipe() {
  return {.name = "bpipe",
          .title = "1F1B whose first stages keep activations in the memory of the last ones (BPipe)",
          .source = "BPipe23",
          .memory =
              "min(K-k, M, L) micro-batches of its own on stage k < (K-1)/2, and on stage K-1-k the others; L is "
              "plan.most_in_flight, by default ceil((K+2)/2)",
          .flush = true,
          .compute = bpipe_schedule,
          .also_refused = bpipe_refusal,
          .bubble = bpipe_bubble,
          .peak_in_flight = bpipe_peak,
          .facts = {.limits_in_flight = true, .uses_partner = true}};
}

}  // namespace pipewright::sim
