// 1F1B with a flush (DAPPLE's early backward, PipeDream-Flush, Megatron-LM's default): the time of GPipe, but stage k
// holds K - k micro-batches instead of M.
//
//   012....aa3bb.cc.dd     K = 3, M = 4, f = 1, b = 2: K - 1 - k forwards of warm-up, then a forward and a backward
//   .01..aa2bb3cc.dd..     in turns. More in tests/sim/schedule_pictures_test.cpp
//   ..0aa1bb2cc3dd....
//
// With replicas the warm-up follows PipeDream's 1F1B-RR: in_flight(stage) - 1 forwards per replica.
#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

Schedule one_f_one_b_schedule(const ScheduleShape& shape) {
  return in_turns("1f1b", shape, true);
}

// The same fill and drain as GPipe, so the same share:
//     bubble = (K - 1) / (M + K - 1)                                                [DAPPLE20] section 2
// K = 4, M = 8: 3/11 = 27.3 %.             tests/papers/identities_test.cpp "GPipe and 1F1B take (M+K-1)(f+b)"
// With recomputation a worker's busy time holds R as well and the share depends on R / (F + B): no formula here.
std::optional<Formula> one_f_one_b_bubble(const ScheduleShape& shape) {
  if (has_replicas(shape) || has_recompute(shape)) return std::nullopt;
  return Formula{"(K-1)/(M+K-1)", shape.stages - 1, std::int64_t{shape.micro_batches} + shape.stages - 1};
}

// A stage begins its first backward once the micro-batches ahead of it fill the stages behind it:
//     peak = min(M, K - k), of a replica min(ceil(M / r), ceil(sum_{j >= k} r_j / r_k))   [DAPPLE20] section 2
// K = 4, M = 8, k = 0: 4; k = 3: 1.        tests/papers/identities_test.cpp "most micro-batches in flight"
std::optional<std::int64_t> one_f_one_b_peak(const ScheduleShape& shape, StageId stage) {
  return std::min<std::int64_t>(shape.seating().most_turns(shape.seating().chunk_of(stage, 0)),
                                in_flight(shape, stage));
}

}  // namespace

ScheduleRule one_f_one_b() {
  return {.name = "1f1b",
          .title = "one forward, one backward, with a flush",
          .source = "DAPPLE20",
          .memory = "min(M, K-k) micro-batches on stage k",
          .flush = true,
          .compute = one_f_one_b_schedule,
          .bubble = one_f_one_b_bubble,
          .peak_in_flight = one_f_one_b_peak,
          .facts = {.takes_replicas = true, .pytorch = "1F1B"},
          .bound = StepBound::Window,
          .hides_hops = "eager_1f1b",
          .searched = 1,
          .searched_with_replicas = 2,
          .in_megatron = true,
          .in_deepspeed = true};
}

}  // namespace pipewright::sim
