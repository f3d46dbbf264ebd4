// Orders of two chunks per stage, there and back, as rows of slots: a building block of one micro-batch, repeated, squeezed
// and reordered.                                                             [ControllableMemory24] section 3, appendix A
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/ids.hpp"

namespace pipewright::sim {

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

// The op of the same micro-batch that one waits for; stage -1: none.
struct VInput {
  StageId stage = -1;
  VSlot slot = VFree;
};
using VInputs = std::vector<std::array<VInput, kVPeriod>>;  // by stage and slot
VInputs v_inputs(int stages);

int v_length(const VRows& rows);

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
    return std::ranges::none_of(values_, [](std::int64_t value) { return value == kNone; });
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

// Slots of stage 0 by kind. From stage to stage what goes there is `step` slots later, and what goes back one earlier;
// `step` is the first one up to stage `first_steps`, then the other. None where two ops of a stage meet.
std::optional<VBlock> v_block(const std::array<int, 4>& first_row, int stages, int first_steps, int first_step,
                              int other_step);

// The block repeated for all micro-batches, squeezed and reordered. None: the block does not work, or a stage would hold
// more than `cap` chunks, which `over_cap` tells.
std::optional<VRows> v_candidate(const VInputs& inputs, const VBlock& block, int micro_batches, int cap,
                                 bool& over_cap);

}  // namespace pipewright::sim
