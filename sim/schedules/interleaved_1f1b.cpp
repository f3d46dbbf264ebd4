// Interleaved 1F1B, Megatron-LM's order: stage k holds v chunks k, k + K, k + 2K, ..., so that fill and drain pass in
// steps of a chunk, 1/v of a stage, at the price of v times the messages.
//
// Forwards take a group of g = K micro-batches (plan.micro_batch_group: more) through the first chunk, the same through
// the next, and so on; backwards the same from the last chunk to the first. The warm-up of 2(K-k-1) + (v-1)g chunk forwards is
// the one of Megatron-LM's `forward_backward_pipelining_with_interleaving`. Where it warms up with everything at M = K, we
// keep the formula: the order of dependencies allows it, the time is the same and fewer micro-batches are in flight.
//
// moe_overlap_1f1b is the same with one forward more of warm-up, so that a forward and the backward behind it never wait for
// one another: each such pair is a cell, made to run at once (plan.pairs). Megatron-LM has it as
// --overlap-moe-expert-parallel-comm [Megatron26], on one stage with one chunk, too.
//                                                                               tests/papers/published_orders_test.cpp
#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

int micro_batches_in_group(const ScheduleShape& shape) {
  return shape.group > 0 ? shape.group : shape.stages;
}

// No overflow: virtual stages fit 16 bits, and the ops of a worker memory (shape_refusal); a group has M at most.
std::int64_t interleaved_warm_up(const ScheduleShape& shape, StageId stage, int ahead) {
  return 2 * (shape.stages - stage - 1) + std::int64_t{shape.virtual_stages - 1} * micro_batches_in_group(shape) +
         ahead;
}

// Whole groups, or with a last one of so many.
std::string nearest_micro_batches(int micro_batches, int in_a_group, int in_the_last) {
  const std::int64_t below = micro_batches / in_a_group * std::int64_t{in_a_group}, above = below + in_the_last;
  return (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(above);
}

std::string interleaved_refusal(std::string_view schedule, const ScheduleShape& shape, bool alone_too) {
  const std::string name(schedule);
  if (shape.virtual_stages < 2 && !(alone_too && shape.stages == 1))
    return name +
           " with one chunk per stage has nothing to interleave: set plan.virtual_stages: 2 or more, or use schedule: "
           "1f1b";
  const int K = shape.stages, M = shape.micro_batches, g = micro_batches_in_group(shape), left = M % g;
  if (shape.group > 0 && g < K)
    return name + " takes as many micro-batches through a chunk as there are stages, or more, but " +
           (g == M ? "M" : "plan.micro_batch_group") + " is " + std::to_string(g) + " for K = " + std::to_string(K) +
           ": use " + std::to_string(K) + " or more";
  if (left != 0 && shape.group == 0)
    return name + " takes micro-batches through the chunks in groups of K, but M = " + std::to_string(M) +
           " is not a multiple of K = " + std::to_string(K) + ": use " + nearest_micro_batches(M, K, K);
  if (left != 0 && left < K)
    return name + " takes micro-batches through the chunks in groups of " + std::to_string(g) +
           ", the last of M = " + std::to_string(M) + " has " + std::to_string(left) +
           ", less than K = " + std::to_string(K) + ": use " + nearest_micro_batches(M, g, K) +
           " micro-batches, or another plan.micro_batch_group";
  return "";
}

std::string interleaved_1f1b_refusal(const ScheduleShape& shape) {
  return interleaved_refusal("interleaved_1f1b", shape, false);
}

// The i-th op of a worker, forward: which of its v chunks, and which micro-batch. Groups go chunk by chunk; the last one
// may be smaller.
class GroupTurns {
 public:
  explicit GroupTurns(const ScheduleShape& shape)
      : v_(shape.virtual_stages),
        group_(micro_batches_in_group(shape)),
        left_(shape.micro_batches % group_),
        full_(shape.micro_batches - left_) {}
  int chunk(int i) const { return i < full_ * v_ ? i / group_ % v_ : (i - full_ * v_) / left_; }
  int micro_batch(int i) const {
    return i < full_ * v_ ? i / (group_ * v_) * group_ + i % group_ : full_ + (i - full_ * v_) % left_;
  }

 private:
  int v_, group_, left_, full_;  // micro-batches of the last, smaller group, and of those before it
};

Schedule interleaved_schedule(std::string_view name, const ScheduleShape& shape, int ahead) {
  Schedule schedule = empty_schedule(name, shape, true);
  const Seating seating = shape.seating();
  const int K = shape.stages, v = shape.virtual_stages, ops = shape.micro_batches * v;
  const GroupTurns turn(shape);
  for (StageId k = 0; k < K; ++k) {
    Lane& lane = schedule.positions[as<PositionId>(k)];
    const int warm = static_cast<int>(std::min<std::int64_t>(interleaved_warm_up(shape, k, ahead), ops));
    one_forward_one_backward(
        ops, warm, [&](int i) { append_forward(lane, seating.chunk_of(k, turn.chunk(i)), turn.micro_batch(i)); },
        [&](int i) {
          const bool pair = ahead > 0 && warm + i < ops;  // behind a forward, which stands before it
          if (pair) lane.compute.back().with_next = 1;
          append_backward(lane, seating.chunk_of(k, v - 1 - turn.chunk(i)), turn.micro_batch(i));
        });
  }
  return schedule;
}

Schedule interleaved_1f1b_schedule(const ScheduleShape& shape) {
  return interleaved_schedule("interleaved_1f1b", shape, 0);
}

// Fill and drain are K - 1 steps of a chunk, (F + B) / v each, beside M (F + B) of work, whatever g is:
//     bubble = (K - 1) / (v M + K - 1)                                              [Megatron21] section 2.2
// (the paper prints bubble / work = (K - 1) / (v M)). K = 4, M = 8, v = 2: 3/19 = 15.8 %.
//                                          tests/papers/identities_test.cpp "interleaving divides fill and drain"
std::optional<Formula> interleaved_bubble(const ScheduleShape& shape) {
  if (has_recompute(shape) || shape.micro_batches % micro_batches_in_group(shape) != 0) return std::nullopt;
  return Formula{"(K-1)/(vM+K-1)", shape.stages - 1,
                 std::int64_t{shape.virtual_stages} * shape.micro_batches + shape.stages - 1};
}

// Warm-up plus one, in chunks (each 1/v of a stage):
//     peak = min(M v, 2(K - k - 1) + (v - 1)g + 1)                   Megatron-LM's warm-up; [Megatron21] section 2.2
// K = 4, M = 8, v = 2, k = 0: min(16, 6 + 4 + 1) = 11 chunks, 5.5 stage-units where 1F1B holds 4.
//                                          tests/papers/identities_test.cpp "most micro-batches in flight"
std::int64_t interleaved_peak(const ScheduleShape& shape, StageId stage, int ahead) {
  return std::min<std::int64_t>(std::int64_t{shape.micro_batches} * shape.virtual_stages,
                                interleaved_warm_up(shape, stage, ahead) + 1);
}

std::optional<std::int64_t> interleaved_1f1b_peak(const ScheduleShape& shape, StageId stage) {
  return interleaved_peak(shape, stage, 0);
}

std::string moe_overlap_refusal(const ScheduleShape& shape) {
  return interleaved_refusal("moe_overlap_1f1b", shape, true);
}

Schedule moe_overlap_schedule(const ScheduleShape& shape) {
  return interleaved_schedule("moe_overlap_1f1b", shape, 1);
}

std::optional<std::int64_t> moe_overlap_peak(const ScheduleShape& shape, StageId stage) {
  return interleaved_peak(shape, stage, 1);
}

}  // namespace

ScheduleRule interleaved_1f1b() {
  return {.name = "interleaved_1f1b",
          .title = "interleaved 1F1B: v chunks per stage, Megatron-LM's order",
          .source = "Megatron21",
          .memory = "min(vM, 2(K-k-1)+(v-1)K+1) chunks on stage k",
          .flush = true,
          .compute = interleaved_1f1b_schedule,
          .also_refused = interleaved_1f1b_refusal,
          .bubble = interleaved_bubble,
          .peak_in_flight = interleaved_1f1b_peak,
          .facts = {.takes_chunks = true, .groups_of_stages = true, .states_group = true, .pytorch = "Interleaved1F1B"},
          .searched = 4,
          .in_megatron = true};
}

ScheduleRule moe_overlap_1f1b() {
  return {.name = "moe_overlap_1f1b",
          .title = "interleaved 1F1B with a forward and a backward at once, for exchanges of experts",
          .source = "Megatron26",
          .memory = "min(vM, 2(K-k-1)+(v-1)K+2) chunks on stage k",
          .flush = true,
          .compute = moe_overlap_schedule,
          .also_refused = moe_overlap_refusal,
          .bubble = interleaved_bubble,
          .peak_in_flight = moe_overlap_peak,
          .facts = {.backward_at_once = false,
                    .takes_chunks = true,
                    .groups_of_stages = true,
                    .states_group = true,
                    .pairs = true},
          .leaner = "interleaved_1f1b",
          .searched = 0,  // unasked, `plan` tries interleaved_1f1b
          .in_megatron = true};
}

}  // namespace pipewright::sim
