// Chimera: two pipelines in opposite directions over the same K workers, each with the weights of all stages. Units of K
// micro-batches, half of them down and half of them up, are merged so that no two passes meet: one pipeline works where the
// other waits.
//
//   01.2cc3dd.aa..bb   K = 4, M = 4, f = 1, b = 2: 0 and 1 go down, 2 and 3 up
//   .0213.ccaaddbb..   tests/sim/schedule_pictures_test.cpp
//   .2031.aaccbbdd..
//   23.0aa1bb.cc..dd
//
// [Chimera21] section 3, direct concatenation of units; the last one may be short. Gradients of a stage are summed over its
// two workers at the end of the step.                                      tests/papers/published_orders_test.cpp
// Forward doubling has no outside oracle: checked by closed form and brute force in tests/sim/schedule_brute_force_test.cpp.
#include <algorithm>
#include <tuple>
#include <vector>

#include "core/units.hpp"
#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

// "2, 4 or 8"
std::string numbers_of_pipelines(int stages) {
  std::string text = "2";
  for (int P = 4; P <= stages; P += 2)
    if (stages % P == 0) text += (P == stages ? " or " : ", ") + std::to_string(P);
  return text;
}

std::string chimera_refusal(const ScheduleShape& shape) {
  if (const int P = shape.pipelines; P < 2 || P % 2 != 0 || shape.stages % P != 0)
    return "chimera runs as many pipelines down as up, and stages are a multiple of all of them, but plan.pipelines "
           "is " +
           std::to_string(P) + " for K = " + std::to_string(shape.stages) + ": use " +
           numbers_of_pipelines(shape.stages);
  if (shape.forwards < 1 || shape.forwards > 2)
    return "chimera runs the forwards of one micro-batch or of two at once, but plan.forwards_at_once is " +
           std::to_string(shape.forwards) + ": use 2 for forward doubling, or 1";
  if (shape.recompute_except_last)
    return "chimera has two last micro-batches, one each way; leave plan.recompute_except_last out";
  return "";
}

// Every pass takes one slot. The j-th micro-batch of a pipeline, in unit u, runs its forward on stage s in slot
// 2 K u + 2 j + s, its backward in slot 2 K u + 2 j + 2 K - 1 - s. With more than two pipelines, those of one direction
// begin on workers 2 K / P apart.                                                          [Chimera21] section 3.6
// Forward doubling: a slot is as long as a backward, and holds the forwards of two micro-batches, m and m + K. Units are
// 3 K slots apart; the backward of m + K comes K slots behind that of m, so that units join without a gap.
//                                                                            [Chimera21] section 3.5, slots derived
struct ChimeraSlot {
  std::int64_t at = 0;
  VirtualStageId stage = 0;
  MicroBatchId micro_batch = 0;
  bool backward = false;
};

// The passes of worker k for the first `count` micro-batches.
std::vector<ChimeraSlot> chimera_slots(const ScheduleShape& shape, StageId k, int count) {
  const int K = shape.stages, in_a_row = K / shape.pipelines;
  const Seating seating = shape.seating();
  std::vector<ChimeraSlot> all;
  for (MicroBatchId m = 0; m < count; ++m) {
    const VirtualStageId stage = seating.chunk_of(k, seating.holder_of(0, m));
    // Of its pipeline, in a row that brings K micro-batches in all.
    const std::int64_t turn = seating.turn_of(stage, m), row = turn / in_a_row;
    const std::int64_t unit = row / shape.forwards, which = row % shape.forwards;
    const std::int64_t first = (1 + shape.forwards) * K * unit + 2 * (turn % in_a_row);
    all.push_back({first + stage, stage, m, false});
    all.push_back({first + (2 + which) * K - 1 - stage, stage, m, true});
  }
  std::ranges::sort(all, [](const ChimeraSlot& a, const ChimeraSlot& b) {
    return std::tie(a.at, a.micro_batch) < std::tie(b.at, b.micro_batch);
  });
  return all;
}

Schedule chimera_schedule(const ScheduleShape& shape) {
  Schedule schedule = empty_schedule("chimera", shape, true);
  for (StageId k = 0; k < shape.stages; ++k) {
    Lane& lane = schedule.positions[as<PositionId>(k)];
    for (const ChimeraSlot& slot : chimera_slots(shape, k, shape.micro_batches))
      slot.backward ? append_backward(lane, slot.stage, slot.micro_batch)
                    : append_forward(lane, slot.stage, slot.micro_batch);
  }
  return schedule;
}

// Equal stages, free communication, units of K. Forwards as long as backwards fill all slots between fill and drain:
//     (K - 2) / (2 M + K - 2)                                                        [Chimera21] section 3.1, table 2
// P pipelines: (2 K / P - 2) / (2 M + 2 K / P - 2), so none of K pipelines waits                        [Chimera21] table 3
// With two pipelines and backwards of twice the forwards a unit waits for the one before it:
//     (K - 2)(M / K + 1) / (3 M + (K - 2)(M / K + 1)),     M = K: (K - 2) / (3 M / 2 + K - 2)        [Chimera21] section 3.4
// Forward doubling: two forwards fill a slot, so that with b = 2 f again all slots are alike. Two slots a stage wait as
// above, a quarter of them less since the first of two forwards goes on at once:
//     (3 K / P - 3) / (3 M + 3 K / P - 3)                       [Chimera21] section 3.5, the wait found from the orders
// K = 4, M = 8: 18 in all, 16 of them work, and 30, 24 of them work; doubled 27. tests/papers/zero_bubble_test.cpp "Chimera"
std::optional<Formula> chimera_bubble(const ScheduleShape& shape, const PassTimes& times) {
  const std::int64_t K = shape.stages, M = shape.micro_batches, f = times.forward;
  const std::int64_t b = times.input_gradient + times.weight_gradient;
  if (has_recompute(shape) || M % (K * shape.forwards) != 0) return std::nullopt;
  if (shape.forwards == 2) {
    const std::int64_t wait = 3 * K / shape.pipelines - 3;
    if (b != 2 * f) return std::nullopt;
    return Formula{"forward doubling: (3K/P-3)/(3M+3K/P-3)", wait, 3 * M + wait};
  }
  if (b == f && shape.pipelines > 2) {
    const std::int64_t wait = 2 * K / shape.pipelines - 2;
    return Formula{"P pipelines: (2K/P-2)/(2M+2K/P-2)", wait, 2 * M + wait};
  }
  if (b == f) return Formula{"(K-2)/(2M+K-2)", K - 2, 2 * M + K - 2};
  if (b != 2 * f || shape.pipelines > 2) return std::nullopt;
  const std::int64_t idle = checked_product(K - 2, M / K + 1, "the idle time of a stage");
  return Formula{"(K-2)(M/K+1)/(3M+(K-2)(M/K+1))", idle, checked_sum(3 * M, idle, "the step")};
}

// From the ends of the pipeline to its middle:
//     peak = K / 2 + 1 .. K micro-batches, K / 2 + 1 + min(k, K - 1 - k)                    [Chimera21] section 3.1, table 2
// for whole units; of less than two, what is there.     tests/papers/identities_test.cpp "most micro-batches in flight"
std::optional<std::int64_t> chimera_peak(const ScheduleShape& shape, StageId stage) {
  std::int64_t now = 0, most = 0;
  for (const ChimeraSlot& slot :
       chimera_slots(shape, stage, std::min(shape.micro_batches, 2 * shape.stages * shape.forwards)))
    now += slot.backward ? -1 : 1, most = std::max(most, now);
  return most;
}

}  // namespace

ScheduleRule chimera() {
  return {.name = "chimera",
          .title = "two pipelines in opposite directions that fill each other's bubbles (Chimera)",
          .source = "Chimera21",
          .memory = "K/2+1+min(k, K-1-k) micro-batches on stage k",
          .flush = true,
          .compute = chimera_schedule,
          .also_refused = chimera_refusal,
          .peak_in_flight = chimera_peak,
          .bubble_of_times = chimera_bubble,
          .facts = {.states_pipelines = true, .states_forwards = true},
          .chunk_order = ChunkOrder::InTurns};
}

}  // namespace pipewright::sim
