// V-Min: two chunks per stage, there and back, with a third of 1F1B's activations on every stage. A micro-batch takes
// one slot a stage, there and back, and never waits. Its two chunks then live for about 4 K slots in all on every
// stage. Backwards are split.
//
//   01.0aw.aw1bw2bw2cw3cw3dw.dw   K = 2, M = 4, f = b = w = 1: stage 0 has chunks 0 and 3, stage 1 chunks 1 and 2
//   .00..aa11wwbb22wwcc33wwddww   tests/sim/schedule_pictures_test.cpp
//
// [ControllableMemory24]; the order is that of the authors' greedy scheduler.
//                                                                             tests/papers/published_orders_test.cpp
#include <algorithm>

#include "sim/schedules/rules.hpp"
#include "sim/schedules/v_blocks.hpp"

namespace pipewright::sim {
namespace {

// Slots k, 2K-k-1, 2K+k and 4K-k-1; where 3 divides K the third would be the first's, and backwards come 2 later.
Schedule v_min_schedule(const ScheduleShape& shape) {
  const int K = shape.stages, later = K % 3 == 0 ? 2 : 0;
  std::vector<BlockSlots> block;
  for (StageId k = 0; k < K; ++k)
    block.push_back({k, 2 * K - k - 1, 2 * K + later + k, 4 * K + later - k - 1});
  return from_split_block("v_min", shape, block);
}

// Equal passes, M >= 2 K: found from the orders, not derived.
//     (4K-7)/(6M+4K-7) where 3 divides K, else (4K-5)/(6M+4K-5)
// K = 4, M = 8: 59 in all, 48 of them work.                          tests/papers/zero_bubble_test.cpp "building block"
std::optional<Formula> v_min_bubble(const ScheduleShape& shape, const PassTimes& times) {
  const int K = shape.stages;
  if (!times.equal()) return std::nullopt;
  if (K == 1) return idle_share(shape, 0, "K-1", "K = 1");
  return K % 3 == 0 ? idle_share(shape, 4 * K - 7, "4K-7", "K mod 3 = 0")
                    : idle_share(shape, 4 * K - 5, "4K-5", "K mod 3 > 0");
}

// Floor((K+4)/3) micro-batches on every stage, where 1F1B has K on its first; fewer while there are few.
//     peak = min(2 M, M + k + 1, C) chunks, C = 2 floor((K+4)/3)                             [ControllableMemory24]
// Where K mod 3 = 2, stage 0 has one chunk less at the peak. So has stage 1 with C - 2 micro-batches, and stage 2 of
// five with three.
// K = 8, M = 24: 7 8 8 8 8 8 8 8.          tests/papers/identities_test.cpp "most micro-batches in flight"
std::optional<std::int64_t> v_min_peak(const ScheduleShape& shape, StageId stage) {
  const int K = shape.stages, M = shape.micro_batches, chunks = 2 * ((K + 4) / 3);
  const bool less = stage == 0 || (stage == 1 && M + 2 == chunks && K > 2) || (stage == 2 && M == 3 && K == 5);
  return std::min({2 * M, M + stage + 1, K % 3 == 2 && less ? chunks - 1 : chunks});
}

}  // namespace

ScheduleRule v_min() {
  return {.name = "v_min",
          .title = "split backwards on two chunks per stage, there and back, with a third of 1F1B's memory (V-Min)",
          .source = "ControllableMemory24",
          .memory = "min(2M, M+k+1, 2 floor((K+4)/3)) chunks on stage k, where K mod 3 = 2 one less on the first",
          .flush = true,
          .splits_backward = true,
          .compute = v_min_schedule,
          .peak_in_flight = v_min_peak,
          .bubble_of_times = v_min_bubble,
          .facts = {.backward_at_once = false, .takes_chunks = true},  // at once where 3 does not divide K
          .chunk_order = ChunkOrder::V,
          .chunks = 2};
}

}  // namespace pipewright::sim
