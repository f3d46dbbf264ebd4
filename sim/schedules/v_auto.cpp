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
#include "sim/schedules/v_auto.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "sim/schedules/made_order.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright {
namespace {

// What stands in a slot: the passes of a micro-batch in the order in which a stage runs them, then their Ws.
enum VSlot : std::int8_t {
  VFree = -1,
  VForwardThere,
  VForwardBack,
  VInputBack,
  VInputThere,
  VWeightsBack,
  VWeightsThere
};
constexpr int kVPeriod = 6;  // slots of a micro-batch, one for each of these
constexpr std::array kVSlots = {VForwardThere, VForwardBack, VInputBack, VInputThere, VWeightsBack, VWeightsThere};
using VRow = std::vector<VSlot>;
using VRows = std::vector<VRow>;  // one for each stage, all of one length

bool is_v_forward(VSlot slot) {
  return slot == VForwardThere || slot == VForwardBack;
}
bool is_v_weights(VSlot slot) {
  return slot == VWeightsBack || slot == VWeightsThere;
}
int v_held(VSlot slot) {
  return is_v_forward(slot) ? 1 : is_v_weights(slot) ? -1 : 0;
}

// The op of the same micro-batch that one waits for; stage -1: none.
struct VInput {
  StageId stage = -1;
  VSlot slot = VFree;
};
using VInputs = std::vector<std::array<VInput, kVPeriod>>;  // by stage and slot
VInputs v_inputs(int stages) {
  VInputs inputs(at(stages));
  for (StageId k = 0; k < stages; ++k) {
    const StageId before = k - 1, behind = k + 1 < stages ? k + 1 : -1;
    inputs[at(k)] = {VInput{before, VForwardThere}, {behind, VForwardBack}, {before, VInputBack},
                     VInput{behind, VInputThere},   {k, VInputBack},        {k, VInputThere}};
  }
  inputs[0][at(VInputBack)] = {0, VForwardBack};
  inputs[at(stages - 1)][at(VForwardBack)] = {stages - 1, VForwardThere};
  inputs[at(stages - 1)][at(VInputThere)] = {stages - 1, VInputBack};
  return inputs;
}

int v_length(const VRows& rows) {
  return static_cast<int>(rows.front().size());
}
int v_peak(const VRow& row) {
  int held = 0, peak = 0;
  for (const VSlot slot : row)
    peak = std::max(peak, held += v_held(slot));
  return peak;
}
int v_peak(const VRows& rows) {
  int peak = 0;
  for (const VRow& row : rows)
    peak = std::max(peak, v_peak(row));
  return peak;
}

// What is known of the ops met so far: the column of each, or when it ends.
class VMet {
 public:
  VMet(const VInputs& inputs, int micro_batches)
      : inputs_(inputs), micro_batches_(micro_batches), counts_(inputs.size()) {
    values_.resize(inputs.size() * kVSlots.size() * at(micro_batches), kNone);
  }
  static constexpr std::int64_t kNone = -2;  // not met
  bool has_all(StageId k, VSlot slot) const { return counts_[at(k)][at(slot)] == micro_batches_; }
  bool has_all() const {
    return std::none_of(values_.begin(), values_.end(), [](std::int64_t value) { return value == kNone; });
  }
  void add(StageId k, VSlot slot, std::int64_t value) { values_[index(k, slot, counts_[at(k)][at(slot)]++)] = value; }
  // Of the input of the next op of that kind, kNone if that has not been met; -1 if it needs none.
  std::int64_t input(StageId k, VSlot slot) const {
    const VInput from = inputs_[at(k)][at(slot)];
    return from.stage < 0 ? -1 : values_[index(from.stage, from.slot, counts_[at(k)][at(slot)])];
  }

 private:
  std::size_t index(StageId k, VSlot slot, int m) const {
    return (at(m) * inputs_.size() + at(k)) * kVSlots.size() + at(slot);
  }
  const VInputs& inputs_;
  const int micro_batches_;
  std::vector<std::array<int, kVPeriod>> counts_;
  std::vector<std::int64_t> values_;
};

// Residues of a micro-batch's slots, by kind; one row for each stage.
using VBlockRow = std::array<int, kVPeriod>;
using VBlock = std::vector<VBlockRow>;

// The Ws take the first residues that are free from their B on.
VBlockRow v_block_row(const std::array<int, 4>& slots) {
  std::array<bool, kVPeriod> taken{};
  VBlockRow row{};
  for (std::size_t i = 0; i < slots.size(); ++i)
    taken[at(row[i] = slots[i])] = true;
  for (const std::size_t of : {VInputBack, VInputThere}) {
    int slot = row[of];
    while (taken[at(slot)])
      slot = (slot + 1) % kVPeriod;
    taken[at(row[of + 2] = slot)] = true;
  }
  return row;
}

// From stage to stage what goes there is `step` slots later, and what goes back one earlier; `step` is the first one up
// to stage `first_steps`, then the other. None where two ops of a stage meet.
std::optional<VBlock> v_block(const std::array<int, 4>& first_row, int stages, int first_steps, int first_step,
                              int other_step) {
  VBlock block{v_block_row(first_row)};
  std::array<int, 4> slots = first_row;
  for (StageId k = 1; k < stages; ++k) {
    const int step = k <= first_steps ? first_step : other_step;
    std::array<bool, kVPeriod> taken{};
    for (std::size_t i = 0; i < slots.size(); ++i) {
      slots[i] = (slots[i] + (i % 2 == 0 ? step : kVPeriod - 1)) % kVPeriod;
      if (std::exchange(taken[at(slots[i])], true)) return std::nullopt;
    }
    block.push_back(v_block_row(slots));
  }
  return block;
}

// The slots of micro-batch 0: each op in the first one of its residue after its input.
VBlock v_first_slots(const VBlock& block) {
  const StageId last = static_cast<StageId>(block.size()) - 1;
  VBlock slots = block;
  const auto next = [](int slot, int residue) { return slot + (residue - slot % kVPeriod + kVPeriod) % kVPeriod; };
  int slot = 0;
  for (std::size_t pass = 0; pass < 4; ++pass)
    for (StageId i = 0; i <= last; ++i) {
      const auto k = at(pass % 2 == 0 ? i : last - i);
      slots[k][pass] = next(slot, block[k][pass]);
      slot = slots[k][pass] + 1;
      if (pass >= 2) slots[k][pass + 2] = next(slot, block[k][pass + 2]);
    }
  return slots;
}

VRows v_repeated(const VBlock& slots, int micro_batches) {
  int length = 0;
  for (const VBlockRow& row : slots)
    length = std::max(length, *std::max_element(row.begin(), row.end()) + kVPeriod * (micro_batches - 1) + 1);
  VRows rows(slots.size(), VRow(at(length), VFree));
  for (std::size_t k = 0; k < slots.size(); ++k)
    for (const VSlot slot : kVSlots)
      for (int m = 0; m < micro_batches; ++m)
        rows[k][at(slots[k][at(slot)] + kVPeriod * m)] = slot;
  return rows;
}

// Every op as early as its input allows, in the same order. None: an op stands before its input. An input may stand in
// the same column.
std::optional<VRows> v_squeezed(const VInputs& inputs, const VRows& rows, int micro_batches) {
  const int stages = static_cast<int>(rows.size()), length = v_length(rows);
  VRows squeezed(rows.size());
  VMet columns(inputs, micro_batches);
  const auto put = [&](StageId k, VSlot slot) {
    if (columns.has_all(k, slot)) return false;
    const std::int64_t input = columns.input(k, slot);
    if (input == VMet::kNone) return false;
    VRow& row = squeezed[at(k)];
    row.resize(std::max(row.size(), static_cast<std::size_t>(input + 1)), VFree);
    columns.add(k, slot, static_cast<std::int64_t>(row.size()));
    row.push_back(slot);
    return true;
  };
  const auto goes_there = [](VSlot slot) {
    return slot == VForwardThere || slot == VInputBack || slot == VWeightsBack;
  };
  for (int column = 0; column < length; ++column)
    for (const bool there : {true, false})
      for (int i = 0; i < stages; ++i) {
        const StageId k = there ? i : stages - 1 - i;
        const VSlot slot = rows[at(k)][at(column)];
        if (slot != VFree && goes_there(slot) == there && !put(k, slot)) return std::nullopt;
      }
  std::size_t longest = 0;
  for (const VRow& row : squeezed)
    longest = std::max(longest, row.size());
  for (VRow& row : squeezed)
    row.resize(longest, VFree);
  return squeezed;
}

// Puts an op into a slot that the row may not have.
bool v_put(VRow& row, int place, VSlot slot) {
  if (place < 0 || at(place) >= row.size()) return false;
  row[at(place)] = slot;
  return true;
}

// All before the first B of the chunk there, again: as many Fs as the peak allows, in the end those of both chunks in
// turns; then B, W and an F in turns, those of the chunk back first.
bool v_warm_up(VRows& rows) {
  const int stages = static_cast<int>(rows.size()), peak = std::min(v_peak(rows), 2 * stages);
  for (StageId k = 0; k < stages; ++k) {
    VRow& row = rows[at(k)];
    std::array<int, kVPeriod> left{};
    for (VSlot& slot : row) {
      if (slot == VInputThere) break;
      if (slot != VFree) ++left[at(std::exchange(slot, VFree))];
    }
    const int most_back = std::min(k + 1, peak / 2);
    int more_back = most_back, more_there = peak - most_back, place = k;
    bool fits = true;
    const auto put = [&](VSlot slot) {
      --left[at(slot)];
      fits = fits && v_put(row, place, slot);
    };
    const auto put_first = [&](VSlot slot, int& more) {
      if (more > 0 && left[at(slot)] > 0) --more, put(slot);
      ++place;
    };
    for (int i = 0; i < 2 * (stages - 1 - k); ++i)
      put_first(VForwardThere, more_there);
    for (int i = 0; i <= k; ++i)
      put_first(VForwardThere, more_there), put_first(VForwardBack, more_back);
    while (std::any_of(left.begin(), left.end(), [](int count) { return count > 0; })) {
      for (const VSlot slot : {VInputBack, VWeightsBack}) {
        if (left[at(slot)] > 0) put(slot);
        ++place;
      }
      if (left[VForwardBack] > 0)
        put(VForwardBack);
      else if (left[VForwardThere] > 0)
        put(VForwardThere);
      ++place;
    }
    if (!fits) return false;
  }
  return true;
}

// Drops the ops of micro-batches from `micro_batches` on.
void v_shorten(VRows& rows, int micro_batches) {
  for (VRow& row : rows) {
    std::array<int, kVPeriod> met{};
    for (VSlot& slot : row)
      if (slot != VFree && met[at(slot)]++ >= micro_batches) slot = VFree;
  }
}

// With few micro-batches there is room for more chunks: the first Ws go to the end, up to that peak.
void v_delay_weights(VRows& rows, int peak) {
  std::vector<int> peaks;
  for (const VRow& row : rows)
    peaks.push_back(v_peak(row));
  const int longer = std::max(0, peak - *std::min_element(peaks.begin(), peaks.end()));
  for (std::size_t k = 0; k < rows.size(); ++k) {
    VRow late;
    for (VSlot& slot : rows[k])
      if (is_v_weights(slot) && peaks[k] + static_cast<int>(late.size()) < peak)
        late.push_back(std::exchange(slot, VFree));
    late.resize(at(longer), VFree);
    rows[k].insert(rows[k].end(), late.begin(), late.end());
  }
}

// Takes up to `most` of the last ops of a kind away; how many it took.
int v_take_last(VRow& row, VSlot what, int most) {
  int taken = 0;
  for (auto slot = row.rbegin(); slot != row.rend() && taken < most; ++slot)
    if (*slot == what) *slot = VFree, ++taken;
  return taken;
}

// A W in every free slot behind the last one while there is one to do, those of the chunk back first; then the rest.
void v_fill_weights(VRow& row) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < row.size(); ++i)
    if (is_v_weights(row[i])) begin = i + 1;
  int back = 0, there = 0;
  const auto fill = [&](VSlot& slot) {
    if (back > 0)
      --back, slot = VWeightsBack;
    else if (there > 0)
      --there, slot = VWeightsThere;
  };
  for (std::size_t i = 0; i < row.size(); ++i) {
    back += (row[i] == VInputBack) - (row[i] == VWeightsBack);
    there += (row[i] == VInputThere) - (row[i] == VWeightsThere);
    if (row[i] == VFree && i >= begin) fill(row[i]);
  }
  row.insert(row.end(), at(std::max(back, 0)), VWeightsBack);
  row.insert(row.end(), at(std::max(there, 0)), VWeightsThere);
}

// The last Bs again, every second slot from stage 0's last F on, so that each directly follows its input; then the Ws.
bool v_cool_down(VRows& rows, int micro_batches) {
  const int stages = static_cast<int>(rows.size()), peak = v_peak(rows);
  const int most_there = std::min((peak + 1) / 2, micro_batches);
  const int most_back = std::min(peak - most_there, micro_batches);
  int begin = v_length(rows) - 1;
  while (begin >= 0 && rows[0][at(begin)] != VForwardBack)
    --begin;
  for (StageId k = 0; k < stages; ++k) {
    VRow& row = rows[at(k)];
    const int back = v_take_last(row, VInputBack, std::min(k + 1, most_back));
    const int there = v_take_last(row, VInputThere, most_there);
    int weights_back = 0, weights_there = 0;
    for (auto slot = row.rbegin(); slot != row.rend(); ++slot) {
      if (weights_back >= back && weights_there >= there && weights_back + weights_there >= peak) break;
      if (!is_v_weights(*slot)) continue;
      ++(*slot == VWeightsBack ? weights_back : weights_there);
      *slot = VFree;
    }
    for (int i = 0; i < there; ++i) {
      const int place = begin - k + 2 * stages - 2 * i;
      if (place < 0 || at(place) >= row.size() || row[at(place)] != VFree) return false;
      row[at(place)] = VInputThere;
    }
    for (int i = 0; i < back; ++i)
      if (!v_put(row, begin + 1 + k - 2 * i, VInputBack)) return false;
  }
  std::size_t longest = 0;
  for (VRow& row : rows)
    v_fill_weights(row), longest = std::max(longest, row.size());
  for (VRow& row : rows)
    row.resize(longest, VFree);
  return true;
}

// Column by column: a free slot gets the first later op of its stage that has its input by then, if the stage holds no
// more for that than the most that one holds now.
void v_reorder(const VInputs& inputs, VRows& rows, int micro_batches) {
  const int stages = static_cast<int>(rows.size()), length = v_length(rows), peak = v_peak(rows);
  std::vector<VBlockRow> last_places(rows.size(), VBlockRow{});
  for (std::size_t k = 0; k < rows.size(); ++k)
    for (int column = 0; column < length; ++column)
      if (const VSlot slot = rows[k][at(column)]; slot != VFree) last_places[k][at(slot)] = column;
  std::vector<int> held(rows.size());
  VMet columns(inputs, micro_batches);

  // Where the op stands that goes to that column; -1: none does.
  const auto later_op = [&](StageId k, int column) {
    const VRow& row = rows[at(k)];
    std::array<bool, kVPeriod> open{};
    for (const VSlot slot : kVSlots)
      open[at(slot)] = last_places[at(k)][at(slot)] > column;
    int kinds = static_cast<int>(std::count(open.begin(), open.end(), true));
    int more = 0, most = 0;  // held, by the ops between
    for (int from = column + 1; from < length && kinds > 0; ++from) {
      const VSlot slot = row[at(from)];
      const int most_before = most;
      most = std::max(most, more += v_held(slot));
      if (slot == VFree || !std::exchange(open[at(slot)], false)) continue;
      --kinds;
      if (is_v_forward(slot) && held[at(k)] + most_before >= peak) continue;
      if (columns.has_all(k, slot)) continue;
      if (const std::int64_t input = columns.input(k, slot); input != VMet::kNone && input < column) return from;
    }
    return -1;
  };
  for (int column = 0; column < length; ++column)
    for (StageId k = 0; k < stages; ++k) {
      VRow& row = rows[at(k)];
      if (row[at(column)] == VFree)
        if (const int from = later_op(k, column); from >= 0) std::swap(row[at(column)], row[at(from)]);
      const VSlot slot = row[at(column)];
      if (slot == VFree || columns.has_all(k, slot)) continue;
      columns.add(k, slot, column);
      held[at(k)] += v_held(slot);
    }
}

// Gives the Ws of a stage in the order of its Bs. False: there are more before a B than Bs.
bool v_relabel_weights(VRows& rows) {
  for (VRow& row : rows) {
    VRow late;
    std::size_t done = 0;
    for (VSlot& slot : row) {
      if (slot == VInputBack) late.push_back(VWeightsBack);
      if (slot == VInputThere) late.push_back(VWeightsThere);
      if (!is_v_weights(slot)) continue;
      if (done == late.size()) return false;
      slot = late[done++];
    }
  }
  return true;
}

// Every op once, in a column behind its input's.
bool v_valid(const VInputs& inputs, const VRows& rows, int micro_batches) {
  VMet columns(inputs, micro_batches);
  for (int column = 0; column < v_length(rows); ++column)
    for (StageId k = 0; k < static_cast<StageId>(rows.size()); ++k) {
      const VSlot slot = rows[at(k)][at(column)];
      if (slot == VFree) continue;
      if (columns.has_all(k, slot)) return false;
      const std::int64_t input = columns.input(k, slot);
      if (input == VMet::kNone || input >= column) return false;
      columns.add(k, slot, column);
    }
  return columns.has_all();
}

// None: the block does not work, or a stage would hold more than `cap` chunks.
std::optional<VRows> v_candidate(const VInputs& inputs, const VBlock& block, int micro_batches, int cap,
                                 bool& over_cap) {
  const int stages = static_cast<int>(block.size());
  // With fewer the warm-up would not be whole; the surplus is dropped behind it.
  const int laid_out = std::max(micro_batches, 2 * stages);
  const bool shorter = micro_batches < laid_out;
  std::optional<VRows> rows = v_repeated(v_first_slots(block), laid_out);
  int peak = v_peak(*rows);
  over_cap = peak > cap;
  if (peak > (shorter ? 2 * stages : cap)) return std::nullopt;
  rows = v_squeezed(inputs, *rows, laid_out);
  if (!rows || !v_warm_up(*rows)) return std::nullopt;
  rows = v_squeezed(inputs, *rows, laid_out);
  if (!rows || v_peak(*rows) > peak) return std::nullopt;
  if (shorter) {
    const int warm_peak = v_peak(*rows);
    v_shorten(*rows, micro_batches);
    if (micro_batches <= stages && 2 * micro_batches <= cap) v_delay_weights(*rows, std::min(2 * stages, warm_peak));
    rows = v_squeezed(inputs, *rows, micro_batches);
    if (!rows) return std::nullopt;
    peak = v_peak(*rows);
    if (over_cap = peak > cap; over_cap) return std::nullopt;
  }
  if (!v_cool_down(*rows, micro_batches)) return std::nullopt;
  rows = v_squeezed(inputs, *rows, micro_batches);
  if (!rows) return std::nullopt;
  v_reorder(inputs, *rows, micro_batches);
  if (!v_relabel_weights(*rows) || v_peak(*rows) > peak || !v_valid(inputs, *rows, micro_batches)) return std::nullopt;
  return rows;
}

VirtualStageId v_chunk(StageId k, VSlot slot, int stages) {
  const bool there = slot == VForwardThere || slot == VInputThere || slot == VWeightsThere;
  return there ? k : 2 * stages - 1 - k;
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
  std::int64_t longest = 0;
  for (std::size_t k = 0; k < rows.size(); ++k)
    longest = std::max(longest, ends[k] - begins[k]);
  return longest;
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

// No longest span is shorter. All work of a stage. On stage 0 also, where nothing but its Fs can run before the first
// micro-batch is back,
//     sum_v f_v + 2(K-1)c + (M-1) f_last + M (b_0 + b_last + w_0 + w_last),   last = 2K-1
// and before its gradient is back nothing of the chunk there but Fs:
//     sum_v f_v + sum_{v>0} b_v + 4(K-1)c + M (b_0 + w_0)
// K = 4, f = b = w = 1, c = 0: M = 2 needs 19, M = 4 needs 27, M = 8 needs 48.
//                                                                    tests/papers/zero_bubble_test.cpp "V, adaptive"
std::int64_t v_span_bound(int micro_batches, const ZeroBubbleTimes& times) {
  const auto& [f, b, w] = std::tie(times.forward, times.input, times.weights);
  const std::size_t last = f.size() - 1, stages = f.size() / 2;
  const std::int64_t M = micro_batches, hops = static_cast<std::int64_t>(2 * (stages - 1)) * times.hop;
  const std::int64_t back = std::accumulate(f.begin(), f.end(), hops);
  const std::int64_t there = std::accumulate(b.begin() + 1, b.end(), back + hops);
  std::int64_t bound =
      std::max(back + (M - 1) * f[last] + M * (b[0] + b[last] + w[0] + w[last]), there + M * (b[0] + w[0]));
  for (std::size_t k = 0; k < stages; ++k)
    bound = std::max(bound, M * (f[k] + f[last - k] + b[k] + b[last - k] + w[k] + w[last - k]));
  return bound;
}

int v_chunk_cap(const ZeroBubbleTimes& times) {
  const int stages = static_cast<int>(times.cap.size());
  std::int64_t chunks = 2 * stages;  // no block of the family holds more
  for (StageId k = 0; k < stages; ++k)
    if (const auto held = std::max(times.held[at(k)], times.held[at(2 * stages - 1 - k)]); held > 0)
      chunks = std::min(chunks, times.cap[at(k)] / held);
  return static_cast<int>(chunks);
}

}  // namespace

std::vector<std::vector<Op>> v_auto_order(int micro_batches, const ZeroBubbleTimes& times) {
  const int stages = static_cast<int>(times.cap.size()), cap = v_chunk_cap(times);
  // One more of more than that adds a period in the middle of every row, and changes nothing else.
  //                                tests/sim/schedule_orders_test.cpp "one micro-batch more is one block more"
  const int laid = std::min(micro_batches, 4 * stages + 4), more = micro_batches - laid;
  const VInputs inputs = v_inputs(stages);
  const std::int64_t bound = v_span_bound(micro_batches, times);
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

ScheduleRule v_auto() {
  return {
      .name = "v_auto",
      .title =
          "two chunks per stage, there and back, in the order of the building block that suits the times of the "
          "plan and plan.most_in_flight best",
      .source = "ControllableMemory24",
      .memory = "2 chunks for each of plan.most_in_flight, by default K, on every stage",
      .flush = true,
      .splits_backward = true,
      .compute = [](const ScheduleShape& shape) { return made_schedule(v_auto(), shape); },
      .refusal = [](const ScheduleShape& shape) { return made_refusal(v_auto(), shape); },
      .peak_in_flight = [](const ScheduleShape&, StageId) -> std::optional<std::int64_t> { return std::nullopt; },
      .facts = {.takes_chunks = true},
      .chunk_order = ChunkOrder::V,
      .chunks = 2,
      .searched = 0,
      .made_for =
          [](const OrderProblem& problem) { return v_auto_order(problem.micro_batches, zero_bubble_times(problem)); }};
}

}  // namespace pipewright
