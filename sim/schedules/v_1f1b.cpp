// V-1F1B: 1F1B with whole backwards on two chunks per stage, there and back. A backward is two slots long, so the way
// back through them takes longer than V-Min's: a stage holds two thirds of 1F1B's activations.
//
//   0120aa1bb3aa2cc.bb3dd.cc..dd   K = 2, M = 4, f = 1, b = 2: stage 0 has chunks 0 and 3, stage 1 chunks 1 and 2
//   .0011.aaaa22bbbb33ccccdddd..   tests/sim/schedule_pictures_test.cpp
//
// [ControllableMemory24]; the order is that of the authors' scheduler.
//                                                                             tests/papers/published_orders_test.cpp
#include <algorithm>

#include "sim/schedules/rules.hpp"
#include "sim/schedules/v_blocks.hpp"

namespace pipewright::sim {
namespace {

// A micro-batch takes one slot a stage in forwards, two in backwards. Three slots stay free behind every third backward
// and, where 3 divides K, in front of them all: so the passes of a stage never meet modulo 6. The last stage's two
// backwards are the first and the second of three. A backward moves by two slots or more, for which there is room in
// front.
Schedule v_1f1b_schedule(const ScheduleShape& shape) {
  const int K = shape.stages;
  std::vector<BlockSlots> block(at(K));
  int slot = 7;
  for (BlockSlots& stage : block)
    stage[0] = slot++;
  for (auto stage = block.rbegin(); stage != block.rend(); ++stage)
    (*stage)[1] = slot++;
  if (K % 3 == 0) slot += 3;
  int backwards = 2 * ((K + 2) % 3);
  const auto backward = [&](int& place) {
    place = slot;
    slot += ++backwards % 3 == 0 ? 5 : 2;
  };
  for (BlockSlots& stage : block)
    backward(stage[2]);
  for (auto stage = block.rbegin(); stage != block.rend(); ++stage)
    backward((*stage)[3]);
  return from_whole_block("v_1f1b", shape, block);
}

// Backwards of two forwards each, M >= 2 K: found from the orders, not derived.
//     (5K-5)/(6M+5K-5) for K mod 3 = 1, likewise 5K-7 for 2, 5K-8 for 0; but 4, 8 and 36 for 2, 3 and 9 stages
// K = 4, M = 8: 63 in all, 48 of them work.                          tests/papers/zero_bubble_test.cpp "building block"
std::optional<Formula> v_1f1b_bubble(const ScheduleShape& shape, const PassTimes& times) {
  const int K = shape.stages;
  if (times.input_gradient + times.weight_gradient != 2 * times.forward) return std::nullopt;
  if (K == 2 || K == 3 || K == 9)
    return idle_share(shape, 4 * K - (K == 9 ? 0 : 4), K == 9 ? "4K" : "4K-4", "K = 2, 3, 9");
  if (K % 3 == 1) return idle_share(shape, 5 * K - 5, "5K-5", "K mod 3 = 1");
  return K % 3 == 2 ? idle_share(shape, 5 * K - 7, "5K-7", "K mod 3 = 2")
                    : idle_share(shape, 5 * K - 8, "5K-8", "K mod 3 = 0");
}

// Floor(2K/3) + 1 micro-batches on every stage, where 1F1B has K on its first; fewer while there are few.
//     peak = min(2 M, M + k + floor(k/2) + 1, 2 floor(2K/3) + 2) chunks                   found from the orders
// K = 8, M = 6: 7 8 10 11 12 12 12 12.     tests/papers/identities_test.cpp "most micro-batches in flight"
std::optional<std::int64_t> v_1f1b_peak(const ScheduleShape& shape, StageId stage) {
  const int M = shape.micro_batches;
  return std::min({2 * M, M + stage + stage / 2 + 1, 2 * (2 * shape.stages / 3) + 2});
}

}  // namespace

ScheduleRule v_1f1b() {
  return {.name = "v_1f1b",
          .title = "whole backwards on two chunks per stage, there and back, with two thirds of 1F1B's memory (V-1F1B)",
          .source = "ControllableMemory24",
          .memory = "min(2M, M+k+floor(k/2)+1, 2 floor(2K/3)+2) chunks on stage k",
          .flush = true,
          .compute = v_1f1b_schedule,
          .peak_in_flight = v_1f1b_peak,
          .bubble_of_times = v_1f1b_bubble,
          .facts = {.takes_chunks = true},  // a backward at once on all but three stages
          .chunk_order = ChunkOrder::V,
          .chunks = 2};
}

}  // namespace pipewright::sim
