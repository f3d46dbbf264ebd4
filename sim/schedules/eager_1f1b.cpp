// Eager 1F1B: 1F1B with a deeper warm-up, 2(K - 1 - k) forwards on stage k. The extra micro-batches in flight are there
// while a tensor is on its way, so a hop is paid at the fill and the drain only, not in every cycle as under 1F1B.
#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

Schedule eager_1f1b_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("eager_1f1b", shape, true);
  for (StageId k = 0; k < shape.stages; ++k) {
    const VirtualStageId v = only_chunk(k);
    Lane& lane = schedule.positions[as<PositionId>(k)];
    one_forward_one_backward(
        shape.micro_batches, 2 * (shape.stages - 1 - k), [&](int m) { append_forward(lane, v, m); },
        [&](int m) { append_backward(lane, v, m); });
  }
  return schedule;
}

// With free communication the deeper warm-up gains nothing and costs nothing:
//     bubble = (K - 1) / (M + K - 1)                                                [DAPPLE20] section 2, as for 1F1B
// K = 4, M = 8: 3/11 = 27.3 %.             tests/papers/identities_test.cpp "GPipe and 1F1B take (M+K-1)(f+b)"
std::optional<Formula> eager_1f1b_bubble(const ScheduleShape& shape) {
  if (has_recompute(shape)) return std::nullopt;
  return Formula{"(K-1)/(M+K-1)", shape.stages - 1, std::int64_t{shape.micro_batches} + shape.stages - 1};
}

// Warm-up plus the one that the steady state adds before it takes one away:
//     peak = min(M, 2(K - k) - 1)                              derived here; 1F1B's K - k is [DAPPLE20] section 2
// K = 4, M = 8, k = 0: 7; k = 3: 1.        tests/papers/identities_test.cpp "most micro-batches in flight"
std::optional<std::int64_t> eager_1f1b_peak(const ScheduleShape& shape, StageId stage) {
  return std::min(shape.micro_batches, 2 * (shape.stages - stage) - 1);
}

}  // namespace

ScheduleRule eager_1f1b() {
  return {.name = "eager_1f1b",
          .title = "1F1B with a warm-up deep enough to hide communication",
          .source = "DAPPLE20",
          .memory = "min(M, 2(K-k)-1) micro-batches on stage k",
          .flush = true,
          .compute = eager_1f1b_schedule,
          .bubble = eager_1f1b_bubble,
          .peak_in_flight = eager_1f1b_peak,
          .bound = StepBound::Work,
          .on_one_stage = "1f1b",
          .leaner = "1f1b",
          .searched = 3};
}

}  // namespace pipewright::sim
