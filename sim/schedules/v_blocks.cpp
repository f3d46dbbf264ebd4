#include "sim/schedules/v_blocks.hpp"

#include <algorithm>
#include <cstdint>

#include "core/folds.hpp"
#include "sim/schedules/lists.hpp"

namespace pipewright::sim {
namespace {

constexpr int kBlockPeriod = 6;  // slots of a micro-batch: F, B and W of two chunks

// What stands in a slot. A backward that is one op has its second slot as W.
enum BlockPass : std::int8_t {
  Free = -1,
  ForwardThere,
  ForwardBack,
  BackwardBack,
  BackwardThere,
  WeightsBack,
  WeightsThere
};
constexpr int kBlockPasses = 6;

bool is_block_forward(BlockPass pass) {
  return pass == ForwardThere || pass == ForwardBack;
}
bool is_block_backward(BlockPass pass) {
  return pass == BackwardBack || pass == BackwardThere;
}
bool is_block_weights(BlockPass pass) {
  return pass >= WeightsBack;
}
BlockPass weights_behind(BlockPass backward) {
  return backward == BackwardBack ? WeightsBack : WeightsThere;
}

struct SlotOp {
  BlockPass pass = Free;
  int m = 0;
};
using SlotRow = std::vector<SlotOp>;
using SlotRows = std::vector<SlotRow>;  // a row for each stage

void put_op(SlotRow& row, int slot, SlotOp op) {
  if (at(slot) >= row.size()) row.resize(at(slot) + 1);
  row[at(slot)] = op;
}

SlotRows repeated_block(const std::vector<BlockSlots>& block, int micro_batches, bool whole) {
  SlotRows rows(block.size());
  for (std::size_t k = 0; k < block.size(); ++k)
    for (int m = 0; m < micro_batches; ++m)
      for (const BlockPass pass : {ForwardThere, ForwardBack, BackwardBack, BackwardThere}) {
        const int slot = block[k][at(pass)] + kBlockPeriod * m;
        put_op(rows[k], slot, {pass, m});
        if (whole && is_block_backward(pass)) put_op(rows[k], slot + 1, {weights_behind(pass), m});
      }
  return rows;
}

// Calls visit(stage, slot) for every op, slot by slot.
template <class Visit>
void visit_by_slot(const SlotRows& rows, Visit&& visit) {
  auto length = most_over<std::size_t>(rows, [](const SlotRow& row) { return row.size(); });
  for (std::size_t slot = 0; slot < length; ++slot)
    for (std::size_t k = 0; k < rows.size(); ++k)
      if (slot < rows[k].size() && rows[k][slot].pass != Free) visit(static_cast<int>(k), static_cast<int>(slot));
}

// Slots of the ops visited so far, by stage and pass; an op of two slots has its second one.
class BlockPlaces {
 public:
  explicit BlockPlaces(int stages) : slots_(at(stages)) {}

  // The first slot after the op that this one waits for, on whichever stage it is, and after the one before it on its
  // own stage.
  int earliest(StageId k, SlotOp op) const {
    const int last = static_cast<int>(slots_.size()) - 1;
    const auto& own = slots_[at(k)];
    int after = op.m == 0 ? -1 : own[at(op.pass)][at(op.m) - 1];
    const auto wait = [&](StageId stage, BlockPass pass) {
      after = std::max(after, slots_[at(stage)][at(pass)][at(op.m)]);
    };
    if (op.pass == ForwardThere || op.pass == BackwardBack) {
      if (k > 0) wait(k - 1, op.pass);
      if (k == 0 && op.pass == BackwardBack) wait(k, ForwardBack);
    } else if (op.pass == ForwardBack || op.pass == BackwardThere) {
      if (k < last) wait(k + 1, op.pass);
      if (k == last) wait(k, op.pass == ForwardBack ? ForwardThere : BackwardBack);
    }
    return after + 1;
  }
  void add(StageId k, SlotOp op, int slot) { slots_[at(k)][at(op.pass)].push_back(slot); }

 private:
  std::vector<std::array<std::vector<int>, kBlockPasses>> slots_;
};

// Every op as early as those it waits for allow, in the same order.                           [ControllableMemory24]
SlotRows squeezed_rows(const SlotRows& rows) {
  SlotRows result(rows.size());
  BlockPlaces places(static_cast<int>(rows.size()));
  visit_by_slot(rows, [&](StageId k, int slot) {
    const SlotOp op = rows[at(k)][at(slot)];
    const int early = std::max(places.earliest(k, op), static_cast<int>(result[at(k)].size()));
    put_op(result[at(k)], early, op);
    places.add(k, op, early);
  });
  return result;
}

void erase_weights(SlotRows& rows) {
  for (SlotRow& row : rows) {
    for (SlotOp& op : row)
      if (is_block_weights(op.pass)) op = {};
    while (!row.empty() && row.back().pass == Free)
      row.pop_back();
  }
}

// A W in every free slot while there is one to do: the oldest, or those of the chunk on the way back first.
void fill_weights(SlotRows& rows, bool chunk_by_chunk) {
  for (SlotRow& row : rows) {
    std::array<int, 2> open{}, done{};  // of the two chunks; the oldest ones are all counted as the first's
    const auto next = [&] {
      const std::size_t chunk = open[0] > 0 ? 0 : 1;
      --open[chunk];
      return SlotOp{chunk == 0 ? WeightsBack : WeightsThere, done[chunk]++};
    };
    for (SlotOp& op : row) {
      if (is_block_backward(op.pass)) ++open[chunk_by_chunk && op.pass == BackwardThere ? 1 : 0];
      if (op.pass == Free && open[0] + open[1] > 0) op = next();
    }
    while (open[0] + open[1] > 0)
      row.push_back(next());
  }
}

// Moves ops to the first free slot after those they wait for, if no stage then holds more than the most that one holds
// now.                                                                                        [ControllableMemory24]
class BlockReordering {
 public:
  explicit BlockReordering(SlotRows& rows, bool weights) : rows_(rows), weights_(weights) {
    for (const SlotRow& row : rows) {
      State state;
      std::vector<State>& states = states_.emplace_back();
      for (const SlotOp op : row) {
        states.push_back(state = after(state, op.pass));
        most_ = std::max(most_, state.held);
      }
    }
    backwards_.resize(rows.size());
  }

  // An op of `length` slots.
  void move(StageId k, int slot, int length) {
    const SlotOp op = rows_[at(k)][at(slot)];
    int to = earliest(k, op);
    if (weights_ && is_block_forward(op.pass)) to = first_with_room(k, to, slot);
    while (to < slot && !(is_free(k, to, length) && (weights_ || fits(k, op.pass, slot, to))))
      ++to;
    if (to < slot) {
      SlotRow& row = rows_[at(k)];
      for (int i = 0; i < length; ++i)
        std::swap(row[at(slot + i)], row[at(to + i)]);
      recount(k, to, slot, length);
    }
    keep(k, op, to + length - 1);
  }

  void keep(StageId k, SlotOp op, int slot) {
    places_.add(k, op, slot);
    if (!is_block_backward(op.pass)) return;
    std::vector<int>& done = backwards_[at(k)];
    done.insert(std::ranges::upper_bound(done, slot), slot);
  }

 private:
  // After a slot. Without Ws in the rows, every free slot does one that waits.
  struct State {
    int held = 0, waiting = 0;
    bool operator==(const State&) const = default;
  };
  State after(State state, BlockPass pass) const {
    if (is_block_forward(pass)) ++state.held;
    if (is_block_weights(pass)) --state.held;
    if (is_block_backward(pass) && !weights_) ++state.waiting;
    if (pass == Free && state.waiting > 0) --state.waiting, --state.held;
    return state;
  }
  // What an op that went from slot `from` to slot `to` changes.
  void recount(StageId k, int to, int from, int length) {
    const SlotRow& row = rows_[at(k)];
    std::vector<State>& states = states_[at(k)];
    if (weights_) {  // it counts from its last slot on
      const BlockPass last = row[at(to + length - 1)].pass;
      for (int x = to + length - 1; x < from + length - 1; ++x)
        states[at(x)].held += is_block_forward(last) ? 1 : is_block_weights(last) ? -1 : 0;
      return;
    }
    for (int x = to; x < static_cast<int>(row.size()); ++x) {
      const State now = after(before(k, x), row[at(x)].pass);
      if (x > from && now == states[at(x)]) return;
      states[at(x)] = now;
    }
  }
  State before(StageId k, int slot) const { return slot == 0 ? State{} : states_[at(k)][at(slot - 1)]; }

  int earliest(StageId k, SlotOp op) const {
    const int slot = places_.earliest(k, op);
    return is_block_weights(op.pass) ? std::max(slot, backwards_[at(k)][at(op.m)] + 1) : slot;
  }
  bool is_free(StageId k, int slot, int length) const {
    for (int i = 0; i < length; ++i)
      if (rows_[at(k)][at(slot + i)].pass != Free) return false;
    return true;
  }
  // From there to `slot` a chunk more can be held. No other op makes more held where the Ws have their slots.
  int first_with_room(StageId k, int first, int slot) const {
    while (slot > first && states_[at(k)][at(slot - 1)].held < most_)
      --slot;
    return slot;
  }
  // Where they have none, moved ops leave them other free slots.
  bool fits(StageId k, BlockPass pass, int from, int to) const {
    const SlotRow& row = rows_[at(k)];
    State state = before(k, to);
    for (int x = to; x < static_cast<int>(row.size()); ++x) {
      state = after(state, x == to ? pass : x == from ? Free : row[at(x)].pass);
      if (state.held > most_) return false;
      if (x >= from && state == states_[at(k)][at(x)]) return true;
    }
    return true;
  }

  SlotRows& rows_;
  const bool weights_;  // the rows hold Ws
  BlockPlaces places_{static_cast<int>(rows_.size())};
  std::vector<std::vector<State>> states_;   // after each slot
  std::vector<std::vector<int>> backwards_;  // slots of those met so far, in order: the n-th W follows the n-th of them
  int most_ = 0;
};

// Warm-up and tail; without Ws in the rows the tail alone. The steady phase between them stays: it begins with the
// first backward of stage 0's chunk there, and ends with the last forward of it.
void reorder_rows(SlotRows& rows, bool weights) {
  enum { WarmUp, Steady, Tail } phase = WarmUp;
  auto forwards = sum_over<int>(rows[0], [](const SlotOp op) { return op.pass == ForwardThere; });
  BlockReordering reordering(rows, weights);
  visit_by_slot(rows, [&](StageId k, int slot) {
    const SlotOp op = rows[at(k)][at(slot)];
    if (phase == WarmUp && k == 0 && op.pass == BackwardThere) phase = Steady;
    const bool still = phase == Steady || (phase == WarmUp && !weights);
    if (phase == Steady && op.pass == ForwardThere && op.m + 1 == forwards) phase = Tail;
    if (still)
      reordering.keep(k, op, slot);
    else
      reordering.move(k, slot, 1);
  });
}

// The ops of a stage without the free slots.
std::vector<SlotOp> ops_in_order(const SlotRow& row) {
  std::vector<SlotOp> ops = row;
  std::erase_if(ops, [](const SlotOp& op) { return op.pass == Free; });
  return ops;
}

// With fewer micro-batches than this already each further one adds a period in the middle of every lane, and changes
// nothing else. So no more are laid out.   tests/sim/schedule_orders_test.cpp "one micro-batch more is one block more"
int enough_micro_batches(const ScheduleShape& shape) {
  return 4 * shape.stages + 4;
}

Schedule written_schedule(std::string_view name, const ScheduleShape& shape, const SlotRows& rows, int micro_batches,
                          bool whole) {
  Schedule schedule = empty_schedule(name, shape, true);
  for (StageId k = 0; k < shape.stages; ++k) {
    Lane& lane = schedule.positions[as<PositionId>(k)];
    const std::array chunk = {shape.seating().chunk_of(k, 0), shape.seating().chunk_of(k, 1)};
    const auto write = [&](SlotOp op, int further) {
      const int m = op.m + further;
      const auto v = chunk[op.pass == ForwardThere || op.pass == BackwardThere || op.pass == WeightsThere ? 0 : 1];
      if (is_block_forward(op.pass)) append_forward(lane, v, m);
      if (is_block_backward(op.pass) && whole) append_backward(lane, v, m);
      if (is_block_backward(op.pass) && !whole) append_input_backward(lane, v, m);
      if (is_block_weights(op.pass) && !whole) append_weights(lane, v, m);
    };
    const std::vector<SlotOp> ops = ops_in_order(rows[at(k)]);
    const int middle = kBlockPeriod * (micro_batches / 2), more = shape.micro_batches - micro_batches;
    for (int i = 0; i < middle; ++i)
      write(ops[at(i)], 0);
    for (int period = 0; period < more; ++period)
      for (int i = middle; i < middle + kBlockPeriod; ++i)
        write(ops[at(i)], period);
    for (int i = middle; i < static_cast<int>(ops.size()); ++i)
      write(ops[at(i)], more);
  }
  return schedule;
}

}  // namespace

Schedule from_split_block(std::string_view name, const ScheduleShape& shape, const std::vector<BlockSlots>& block) {
  const int micro_batches = std::min(shape.micro_batches, enough_micro_batches(shape));
  SlotRows rows = repeated_block(block, micro_batches, false);
  for (const bool weights : {true, false}) {
    if (weights) fill_weights(rows, false);
    reorder_rows(rows, weights);
    if (!weights) fill_weights(rows, false);
    rows = squeezed_rows(rows);
    erase_weights(rows);
  }
  fill_weights(rows, true);
  return written_schedule(name, shape, rows, micro_batches, false);
}

Schedule from_whole_block(std::string_view name, const ScheduleShape& shape, const std::vector<BlockSlots>& block) {
  const int micro_batches = std::min(shape.micro_batches, enough_micro_batches(shape));
  SlotRows rows = repeated_block(block, micro_batches, true);
  BlockReordering reordering(rows, true);
  visit_by_slot(rows, [&](StageId k, int slot) {
    const BlockPass pass = rows[at(k)][at(slot)].pass;
    if (!is_block_weights(pass)) reordering.move(k, slot, is_block_backward(pass) ? 2 : 1);
  });
  return written_schedule(name, shape, rows, micro_batches, true);
}

std::optional<Formula> idle_share(const ScheduleShape& shape, int idle, std::string_view text, std::string_view where) {
  if (shape.micro_batches < 2 * shape.stages) return std::nullopt;
  const std::string term(text);
  return Formula{std::string(where) + ": (" + term + ")/(6M+" + term + ")", idle,
                 std::int64_t{kBlockPeriod} * shape.micro_batches + idle};
}

}  // namespace pipewright::sim
