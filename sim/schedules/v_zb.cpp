// V-ZB: two chunks per stage, there and back, with as many activations as 1F1B's first stage has, on every stage, and no
// bubble between a stage's first op and its last. A micro-batch takes five slots a stage on the way there and one on the
// way back, in forwards and in backwards. Its two chunks then live for about 12 K slots in all. Backwards are split.
//
//   0120aw1baww32cbww43dcww4edweww.   K = 2, M = 5, f = b = w = 1: stage 0 has chunks 0 and 3, stage 1 chunks 1 and 2
//   .0011aaww22bbww33ccw4w4ddeewwww   tests/sim/schedule_pictures_test.cpp
//
// The slots are derived from [ControllableMemory24]: the offsets of V-Min and V-Half, once more.
#include "sim/schedules/rules.hpp"
#include "sim/schedules/v_blocks.hpp"

namespace pipewright::sim {
namespace {

// Slots 5k, 6K-k-5, 6K+5k-4 and 12K-k-9: on every stage they follow one another, modulo the six of a micro-batch.
Schedule v_zb_schedule(const ScheduleShape& shape) {
  const int K = shape.stages;
  std::vector<BlockSlots> block;
  for (StageId k = 0; k < K; ++k)
    block.push_back({5 * k, 6 * K - k - 5, 6 * K + 5 * k - 4, 12 * K - k - 9});
  return from_split_block("v_zb", shape, block);
}

// Equal passes, M > 2 K: a stage is busy from its first op to its last, and the last one begins K - 1 forwards of a chunk
// late:
//     (K-1)/(6M+K-1)                                                        found from the orders, not derived
// K = 4, M = 12: 75 in all, 72 of them work.                       tests/papers/zero_bubble_test.cpp "building block"
std::optional<Formula> v_zb_bubble(const ScheduleShape& shape, const PassTimes& times) {
  const int K = shape.stages;
  if (!times.equal() || shape.micro_batches <= 2 * K) return std::nullopt;
  return Formula{"(K-1)/(6M+K-1)", K - 1, std::int64_t{6} * shape.micro_batches + K - 1};
}

// As many chunks as 1F1B's stage 0 has, on every stage, once there are enough micro-batches: M >= 2 K.
//     peak = 2 K chunks                                                                       [ControllableMemory24]
//                                          tests/papers/identities_test.cpp "most micro-batches in flight"
std::optional<std::int64_t> v_zb_peak(const ScheduleShape& shape, StageId) {
  if (shape.micro_batches < 2 * shape.stages) return std::nullopt;
  return 2 * shape.stages;
}

}  // namespace

ScheduleRule v_zb() {
  return {
      .name = "v_zb",
      .title = "split backwards on two chunks per stage, there and back, with the memory of 1F1B and no bubble (V-ZB)",
      .source = "ControllableMemory24",
      .memory = "2K chunks on every stage",
      .flush = true,
      .splits_backward = true,
      .compute = v_zb_schedule,
      .peak_in_flight = v_zb_peak,
      .bubble_of_times = v_zb_bubble,
      .facts = {.takes_chunks = true},
      .chunk_order = ChunkOrder::V,
      .chunks = 2};
}

}  // namespace pipewright::sim
