// Interleaved 1F1B, Megatron-LM's order: stage k holds v chunks k, k + K, k + 2K, ..., so that fill and drain pass in
// steps of a chunk, 1/v of a stage, at the price of v times the messages.
//
// Forwards take K micro-batches through the first chunk, the same K through the next, and so on; backwards the same
// from the last chunk to the first. The warm-up of 2(K-k-1) + (v-1)K chunk forwards is the one of Megatron-LM's
// `forward_backward_pipelining_with_interleaving`. Where it warms up with everything at M = K, we keep the formula:
// the order of dependencies allows it, the time is the same and fewer micro-batches are in flight.
#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright {
namespace {

// No overflow: virtual stages fit 16 bits (shape_refusal).
int warm_up(const ScheduleShape& shape, StageId stage) {
  return 2 * (shape.stages - stage - 1) + (shape.virtual_stages - 1) * shape.stages;
}

std::string nearest_micro_batches(int micro_batches, int stages) {
  const std::int64_t below = micro_batches / stages * std::int64_t{stages}, above = below + stages;
  return (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(above);
}

std::string interleaved_1f1b_refusal(const ScheduleShape& shape) {
  if (std::string why = shape_refusal(shape); !why.empty()) return why;
  if (shape.virtual_stages < 2)
    return "interleaved_1f1b with one chunk per stage has nothing to interleave: set plan.virtual_stages: 2 or more, "
           "or use schedule: 1f1b";
  if (std::string why = replica_refusal(shape, "interleaved_1f1b"); !why.empty()) return why;
  if (shape.micro_batches % shape.stages != 0)
    return "interleaved_1f1b takes micro-batches through the chunks in groups of K, but M = " +
           std::to_string(shape.micro_batches) + " is not a multiple of K = " + std::to_string(shape.stages) +
           ": use " + nearest_micro_batches(shape.micro_batches, shape.stages);
  return "";
}

Schedule interleaved_1f1b_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("interleaved_1f1b", shape, true);
  const int K = shape.stages, v = shape.virtual_stages;
  // The i-th chunk op of a worker, forward: groups of K micro-batches, chunk by chunk inside a group.
  const auto chunk = [&](int i) { return i / K % v; };
  const auto micro_batch = [&](int i) { return i / (K * v) * K + i % K; };
  for (StageId k = 0; k < K; ++k) {
    Lane& lane = schedule.positions[static_cast<std::size_t>(k)];
    one_forward_one_backward(
        shape.micro_batches * v, warm_up(shape, k),
        [&](int i) { append_forward(lane, chunk(i) * K + k, micro_batch(i)); },
        [&](int i) { append_backward(shape, lane, (v - 1 - chunk(i)) * K + k, micro_batch(i)); });
  }
  return schedule;
}

// Fill and drain are K - 1 steps of a chunk, (F + B) / v each, beside M (F + B) of work:
//     bubble = (K - 1) / (v M + K - 1)                                              [Megatron21] section 2.2
// (the paper prints bubble / work = (K - 1) / (v M)). K = 4, M = 8, v = 2: 3/19 = 15.8 %.
//                                          tests/papers/identities_test.cpp "interleaving divides fill and drain"
std::optional<Formula> interleaved_1f1b_bubble(const ScheduleShape& shape) {
  if (has_recompute(shape)) return std::nullopt;
  return Formula{"(K-1)/(vM+K-1)", shape.stages - 1,
                 std::int64_t{shape.virtual_stages} * shape.micro_batches + shape.stages - 1};
}

// Warm-up plus one, in chunks (each 1/v of a stage):
//     peak = min(M v, 2(K - k - 1) + (v - 1)K + 1)                   Megatron-LM's warm-up; [Megatron21] section 2.2
// K = 4, M = 8, v = 2, k = 0: min(16, 6 + 4 + 1) = 11 chunks, 5.5 stage-units where 1F1B holds 4.
//                                          tests/papers/identities_test.cpp "most micro-batches in flight"
std::optional<std::int64_t> interleaved_1f1b_peak(const ScheduleShape& shape, StageId stage) {
  return std::min<std::int64_t>(std::int64_t{shape.micro_batches} * shape.virtual_stages, warm_up(shape, stage) + 1);
}

}  // namespace

ScheduleRule interleaved_1f1b() {
  return {.name = "interleaved_1f1b",
          .title = "interleaved 1F1B: v chunks per stage, Megatron-LM's order",
          .source = "Megatron21",
          .memory = "min(vM, 2(K-k-1)+(v-1)K+1) chunks on stage k",
          .flush = true,
          .compute = interleaved_1f1b_schedule,
          .refusal = interleaved_1f1b_refusal,
          .bubble = interleaved_1f1b_bubble,
          .peak_in_flight = interleaved_1f1b_peak,
          .facts = {.takes_chunks = true, .groups_of_stages = true, .pytorch = "Interleaved1F1B"},
          .searched = 4,
          .in_megatron = true};
}

}  // namespace pipewright
