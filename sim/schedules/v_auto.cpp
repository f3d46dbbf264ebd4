// V-Min, V-Half and V-ZB are made of one building block each; here all blocks of a family are tried. The slots of stage
// 0 are free, and each further stage has its slots a fixed step later or earlier, with one change of the step. Each
// block is repeated, squeezed and reordered; the order whose longest span is shortest for the times given counts.
//
//   0123.0aw1bw.aw2cw4bw3dw5cw4ew.5fdwewfww   K = 3, M = 6, f = b = w = 1, room for 5 chunks
//   .0120.1aw3baw2w.cbw34wdcw45we5dwfewfwww   tests/sim/schedule_pictures_test.cpp
//   ..00112.awab2ww3bc3ww4cd4ww55deewffwwww
//
// [ControllableMemory24] section 3, appendix A; the rules are those of the authors' v_auto_schedule.py. K = 4, M = 12,
// f = b = w = 1: with a cap of 4, 5, 6, 7, 8 chunks the longest span is 83, 80, 77, 75, 72, and 72 is all work. That is
// 6 K - 1 - 3 cap of idle time, but 3 and 0 for the last two.           tests/papers/zero_bubble_test.cpp "V, adaptive"
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/folds.hpp"
#include "sim/finder/bounds.hpp"
#include "sim/schedules/lists.hpp"
#include "sim/schedules/made_order.hpp"
#include "sim/schedules/rules.hpp"
#include "sim/schedules/v_rows.hpp"

namespace pipewright::sim {
namespace {

VirtualStageId v_chunk(StageId k, VSlot slot, int stages) {
  const bool there = slot == VForwardThere || slot == VInputThere || slot == VWeightsThere;
  return v_seating(stages).chunk_of(k, there ? 0 : 1);
}

// The columns of as many micro-batches more: a period in the middle, again and again.
std::vector<int> v_columns(int length, int more) {
  std::vector<int> columns;
  const int end = length / 2 + kVPeriod;
  for (int column = 0; column < end && column < length; ++column)
    columns.push_back(column);
  for (int i = 0; i < more * kVPeriod; ++i)
    columns.push_back(length / 2 + i % kVPeriod);
  for (int column = end; column < length; ++column)
    columns.push_back(column);
  return columns;
}

// From the first op to the last on the stage where that takes longest. Columns are in an order in which ops can be run.
std::int64_t v_longest_span(const VInputs& inputs, const VRows& rows, int micro_batches, int more,
                            const ZeroBubbleTimes& times) {
  const int stages = static_cast<int>(rows.size());
  const std::array lengths = {&times.forward, &times.forward, &times.input,
                              &times.input,   &times.weights, &times.weights};
  std::vector<std::int64_t> begins(rows.size(), -1), ends(rows.size());
  VMet met(inputs, micro_batches + more);  // with their ends
  for (const int column : v_columns(v_length(rows), more))
    for (StageId k = 0; k < stages; ++k) {
      const VSlot slot = rows[at(k)][at(column)];
      if (slot == VFree) continue;
      const StageId from = inputs[at(k)][at(slot)].stage;
      const std::int64_t begin = std::max(ends[at(k)], met.input(k, slot) + (from < 0 || from == k ? 0 : times.hop));
      if (begins[at(k)] < 0) begins[at(k)] = begin;
      ends[at(k)] = begin + (*lengths[at(slot)])[at(v_chunk(k, slot, stages))];
      met.add(k, slot, ends[at(k)]);
    }
  return most_over<std::int64_t>(counted_to(rows.size()), [&](std::size_t k) { return ends[k] - begins[k]; });
}

std::vector<std::vector<Op>> v_orders(const VRows& rows, int more) {
  constexpr std::array kinds = {Kind::F, Kind::F, Kind::B, Kind::B, Kind::W, Kind::W};
  const int stages = static_cast<int>(rows.size());
  std::vector<std::vector<Op>> orders(rows.size());
  for (StageId k = 0; k < stages; ++k) {
    std::array<std::uint32_t, kVPeriod> next{};
    for (const int column : v_columns(v_length(rows), more))
      if (const VSlot slot = rows[at(k)][at(column)]; slot != VFree)
        orders[at(k)].push_back({.kind = kinds[at(slot)],
                                 .virtual_stage = static_cast<std::uint16_t>(v_chunk(k, slot, stages)),
                                 .micro_batch = next[at(slot)]++});
  }
  return orders;
}

int v_chunk_cap(const ZeroBubbleTimes& times) {
  const int stages = static_cast<int>(times.cap.size());
  const Seating seating = v_seating(stages);
  std::int64_t chunks = seating.chunks();  // no block of the family holds more
  for (StageId k = 0; k < stages; ++k)
    if (const auto held = std::max(times.held[at(k)], times.held[at(seating.chunk_of(k, 1))]); held > 0)
      chunks = std::min(chunks, times.cap[at(k)] / held);
  return static_cast<int>(chunks);
}

// A list for each stage. The cap counts whole chunks, each held from its F to its W. Empty where no block fits: from M = K
// on they want 2 floor((K + 4) / 3) chunks, less for K = M = 2.
std::vector<std::vector<Op>> v_auto_order(const OrderProblem& problem) {
  const ZeroBubbleTimes times = zero_bubble_times(problem);
  const int micro_batches = problem.micro_batches;
  const int stages = static_cast<int>(times.cap.size()), cap = v_chunk_cap(times);
  // One more of more than that adds a period in the middle of every row, and changes nothing else.
  //                                tests/sim/schedule_orders_test.cpp "one micro-batch more is one block more"
  const int laid = std::min(micro_batches, 4 * stages + 4), more = micro_batches - laid;
  const VInputs inputs = v_inputs(stages);
  OrderProblem spans = problem;
  spans.measure = OrderMeasure::Span;
  spans.down.assign(problem.down.size(), times.hop), spans.down[at(stages - 1)] = 0;  // both chunks of the last stage
  spans.up = spans.down;
  const std::int64_t bound = order_bound(spans).value;
  std::optional<VRows> best;
  std::int64_t best_span = 0;
  // The farther the first step reaches, the more a block holds, so that the first one over the cap ends the row.
  const auto try_steps = [&](const std::array<int, 4>& first_row, int first_step, int other_step) {
    const int farthest = first_step == other_step ? 1 : stages - 1;
    for (int first_steps = 1; first_steps <= farthest; ++first_steps) {
      const std::optional<VBlock> block = v_block(first_row, stages, first_steps, first_step, other_step);
      if (!block) continue;
      bool over_cap = false;
      std::optional<VRows> rows = v_candidate(inputs, *block, laid, cap, over_cap);
      if (over_cap) return;
      if (!rows) continue;
      const std::int64_t span = v_longest_span(inputs, *rows, laid, more, times);
      if (best && span >= best_span) continue;
      best = std::move(rows);
      best_span = span;
    }
  };
  for (int forward_back = 1; forward_back < kVPeriod; ++forward_back)
    for (int input_back = 1; input_back < kVPeriod; ++input_back)
      for (int input_there = 1; input_there < kVPeriod; ++input_there) {
        if (best && best_span == bound) return v_orders(*best, more);
        if (forward_back == input_back || forward_back == input_there || input_back == input_there) continue;
        for (int first_step = 1; first_step < kVPeriod; ++first_step)
          for (int other_step = 1; other_step <= first_step; ++other_step)
            try_steps({0, forward_back, input_back, input_there}, first_step, other_step);
      }
  if (!best) return {};
  return v_orders(*best, more);
}

}  // namespace

ScheduleRule v_auto() {
  return {.name = "v_auto",
          .title =
              "two chunks per stage, there and back, in the order of the building block that suits the times of the "
              "plan and plan.most_in_flight best",
          .source = "ControllableMemory24",
          .memory = "2 chunks for each of plan.most_in_flight, by default K, on every stage",
          .flush = true,
          .splits_backward = true,
          .compute = [](const ScheduleShape& shape) { return made_schedule(v_auto(), shape); },
          .peak_in_flight = [](const ScheduleShape&, StageId) -> std::optional<std::int64_t> { return std::nullopt; },
          .facts = {.takes_chunks = true, .limits_in_flight = true},
          .chunk_order = ChunkOrder::V,
          .chunks = 2,
          .searched = 0,
          .made_for = v_auto_order};
}

}  // namespace pipewright::sim
