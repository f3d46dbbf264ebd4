// V-Half: two chunks per stage, there and back, with half of 1F1B's activations on every stage. A micro-batch takes two
// slots a stage on the way there and one on the way back, in forwards and in backwards. Its two chunks then live for
// about 6 K slots in all on every stage. Backwards are split.
//
//   0120aw1.abw2w3bcw3dcwdwww   K = 2, M = 4, f = b = w = 1: stage 0 has chunks 0 and 3, stage 1 chunks 1 and 2
//   .0011awaw22bbw3w3ccddwwww   tests/sim/schedule_pictures_test.cpp
//
// [ControllableMemory24]; the order is that of the authors' greedy scheduler.
//                                                                             tests/papers/published_orders_test.cpp
#include <algorithm>

#include "sim/schedules/rules.hpp"
#include "sim/schedules/v_blocks.hpp"

namespace pipewright::sim {
namespace {

// Slots 2k, 3K-k-2, 3K+2k-1 and 6K-k-2; for even K, where the third would be the first's, backwards come 3 later.
Schedule v_half_schedule(const ScheduleShape& shape) {
  const int K = shape.stages, later = K % 2 == 0 ? 3 : 0;
  std::vector<BlockSlots> block;
  for (StageId k = 0; k < K; ++k)
    block.push_back({2 * k, 3 * K - k - 2, 3 * K + later + 2 * k - 1, 6 * K + later - k - 2});
  return from_split_block("v_half", shape, block);
}

// Equal passes, M >= 2 K: found from the orders, not derived.
//     (3K-7)/(6M+3K-7) for even K, 1/(6M+1) for two stages; (3K-4)/(6M+3K-4) for odd K
// K = 4, M = 8: 53 in all, 48 of them work.                          tests/papers/zero_bubble_test.cpp "building block"
std::optional<Formula> v_half_bubble(const ScheduleShape& shape, const PassTimes& times) {
  const int K = shape.stages;
  if (!times.equal()) return std::nullopt;
  if (K <= 2) return idle_share(shape, K - 1, "K-1", "K <= 2");
  return K % 2 == 0 ? idle_share(shape, 3 * K - 7, "3K-7", "K even") : idle_share(shape, 3 * K - 4, "3K-4", "K odd");
}

// Floor((K+2)/2) micro-batches on every stage, where 1F1B has K on its first; fewer while there are few.
//     peak = min(2 M, M + k + 1, 2 floor((K+2)/2)) chunks                                    [ControllableMemory24]
// K = 4, M = 3: 4 5 6 6.                   tests/papers/identities_test.cpp "most micro-batches in flight"
std::optional<std::int64_t> v_half_peak(const ScheduleShape& shape, StageId stage) {
  return std::min({2 * shape.micro_batches, shape.micro_batches + stage + 1, 2 * ((shape.stages + 2) / 2)});
}

}  // namespace

ScheduleRule v_half() {
  return {.name = "v_half",
          .title = "split backwards on two chunks per stage, there and back, with half the memory of 1F1B (V-Half)",
          .source = "ControllableMemory24",
          .memory = "min(2M, M+k+1, 2 floor((K+2)/2)) chunks on stage k",
          .flush = true,
          .splits_backward = true,
          .compute = v_half_schedule,
          .peak_in_flight = v_half_peak,
          .bubble_of_times = v_half_bubble,
          .facts = {.backward_at_once = false, .takes_chunks = true},  // at once where K is odd
          .chunk_order = ChunkOrder::V,
          .chunks = 2};
}

}  // namespace pipewright::sim
