#include "sim/schedules/v_rows.hpp"

#include <utility>

#include "core/folds.hpp"

namespace pipewright::sim {
namespace {

bool is_v_forward(VSlot slot) {
  return slot == VForwardThere || slot == VForwardBack;
}
bool is_v_weights(VSlot slot) {
  return slot == VWeightsBack || slot == VWeightsThere;
}
int v_held(VSlot slot) {
  return is_v_forward(slot) ? 1 : is_v_weights(slot) ? -1 : 0;
}

int v_peak(const VRow& row) {
  int held = 0, peak = 0;
  for (const VSlot slot : row)
    peak = std::max(peak, held += v_held(slot));
  return peak;
}
int v_peak(const VRows& rows) {
  return most_over<int>(rows, [&](const VRow& row) { return v_peak(row); });
}

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

// The slots of micro-batch 0: each op in the first one of its residue after its input.
VBlock v_first_slots(const VBlock& block) {
  const StageId last = static_cast<StageId>(block.size()) - 1;
  VBlock slots = block;
  const auto next = [](int slot, int residue) { return slot + (residue - slot % kVPeriod + kVPeriod) % kVPeriod; };
  int slot = 0;
  for (std::size_t pass = 0; pass < 4; ++pass)
    for (StageId i = 0; i <= last; ++i) {
      const auto k = at(pass % 2 == 0 ? int{i} : last - i);
      slots[k][pass] = next(slot, block[k][pass]);
      slot = slots[k][pass] + 1;
      if (pass >= 2) slots[k][pass + 2] = next(slot, block[k][pass + 2]);
    }
  return slots;
}

VRows v_repeated(const VBlock& slots, int micro_batches) {
  auto length = most_over<int>(
      slots, [&](const VBlockRow& row) { return *std::ranges::max_element(row) + kVPeriod * (micro_batches - 1) + 1; });
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
    row.resize(std::max(row.size(), at(input + 1)), VFree);
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
  auto longest = most_over<std::size_t>(squeezed, [](const VRow& row) { return row.size(); });
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
    while (std::ranges::any_of(left, [](int count) { return count > 0; })) {
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
  auto peaks = mapped<int>(rows, [&](const VRow& row) { return v_peak(row); });
  const int longer = std::max(0, peak - *std::ranges::min_element(peaks));
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
    int kinds = static_cast<int>(std::ranges::count(open, true));
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

}  // namespace

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

}  // namespace pipewright::sim
