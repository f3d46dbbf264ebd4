// A run as every worker sees it, settled before it begins: the code of its virtual stages, the slots of its messages,
// the buffers of its weight versions. Nothing here depends on a clock.
//
// Slots. A message is written into a slot at its receiver; slots of a channel are used in turn. A slot is held until
// the op that reads it last has ended: the forward, or the backward where that reads its input or runs the forward
// again. A channel has as many slots as it takes that no sender ever waits, whatever the timing: message i may go when
// slot i mod S is free, so S is the least number for which the last reader of message i - S always ends before the op
// that makes message i begins. Gradients have two at most where that cannot lock up: a GPipe stage would else hold one
// per micro-batch.
//     1f1b, K stages: forward into stage k: min(M, K - k + 1).    tests/runtime/run_plan_test.cpp "slots"
//
// Between copies there are two: the message behind the one that is read may arrive. Numbers go on from op to op. Message n
// waits until n - 2 has been read, which waits for earlier numbers alone, so that they cannot lock up.
//
// Versions. Asynchronous schedules update while micro-batches are in flight. With stashing the backward of a
// micro-batch reads the version its forward used [PipeDream19] section 3.3, without it the newest; with vertical sync
// every stage uses the version that the input stage used. A version's buffer is used again once nobody will read it.
//
// Parts. With training.zero: 1 the members of a chunk's all-reduce divide its update: all sum whole gradients, member i
// updates part i of the weights, of which alone it has masters and optimizer states, and all then gather the parts
// [ZeRO20] section 5.1. Parts follow one another where the gradients lie. All are as long as ceil(bytes / members),
// rounded up to the alignment, but those at the end, which may be shorter or empty; every member has room for a full one.
// The memory model has ceil(parameters / members) of 4 B, without gaps between tensors (core/cost/cost_model.hpp).
//     1984 B, 3 members, alignment 64 B: 704, 704 and 576 B.    tests/runtime/zero_test.cpp "parts"
//
// With 2 gradients are divided, too: a member keeps the sum of its part. A round's whole gradients are there from its
// first backward on; their buckets are scattered when the last one has them complete, and a part is added up round by
// round. The backward that begins a round waits until all that was sent off before is scattered. With 3, where chunks are
// units, it does not wait for the latest if that is of another unit. Each member updates its part; the gather that the
// schedule has at the step's begin brings the parts together. With 3 a member keeps its part of the weights alone: a
// chunk's whole weights have room from the start of the op that lets their gather begin to the end of the last reader
// before the next one.                       [ZeRO20] section 5, [FSDP23] section 3.2, tests/runtime/zero_test.cpp "room"
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/plan/schedule.hpp"
#include "runtime/arena.hpp"
#include "runtime/chunk_code.hpp"
#include "runtime/moves.hpp"

namespace pipewright::core {
class CostModel;
}

namespace pipewright::runtime {

// Messages of one edge and direction from one position to another, within every copy. Or between copies of a group, which
// follow one another, in the middle of ops at one position: from each to the one `ahead` places behind it, the first behind
// the last. Keys and values go so to the next part of a sequence, rows of experts to all others.
struct RunChannel {
  int edge = 0;
  bool forward = true;
  PositionId from = 0, to = 0;
  int slots = 0;
  std::array<std::int64_t, 2> bytes{};      // of a message: full and last micro-batch
  std::vector<MicroBatchId> micro_batches;  // in the order in which they are sent
  int group = 1, ahead = 0;                 // copies; 1: within a copy
  bool keeps = false;                       // activations of `from`, until it takes them back (runtime/moves.hpp)
  bool between_copies() const { return group > 1; }
};

// What an op of a position reads and writes beside its micro-batch.
struct OpVersions {
  std::int32_t read = 0;          // number of the weights' buffer; Update: that it begins with
  std::int32_t write = 0;         // Update: that it leaves
  std::int32_t version = 0;       // updates that went into `read`
  std::int32_t gradient_set = 0;  // which gradients a backward adds to, an Update reads
};

struct RunChunk {
  int buffers = 1;               // of the weights
  int gradient_sets = 1;         // two where gradients of one round travel while those of the next are summed
  int members = 1;               // of its all-reduce
  int parts = 1;                 // training.zero: members, each of which updates one of as many parts of the weights
  std::int64_t state_bytes = 0;  // of a part of its masters, of its gradients, or of one optimizer state of it
};

// Around an op of the compute stream, where weights or gradients are divided.
struct WholeAt {
  std::int32_t needs = 0;                    // gathers of the lane that are over before it begins
  std::int32_t lets = 0;                     // that may have begun when it has
  std::vector<VirtualStageId> taken, given;  // whole weights: room taken when it begins, given back when it has ended
  std::int32_t turn = -1;                    // of the round that it adds to, among those of its chunk
  bool opens = false;                        // as the first op: the round's gradients take room
  std::vector<std::pair<VirtualStageId, std::int32_t>>
      reduced;  // chunk and turn: over before it begins, room given back
};

struct RunOptions {
  bool weight_stashing = true;  // asynchronous schedules
  double loss_scale = 1;        // what the loss is multiplied by, so that small gradients are not lost in fp16
  // A synthetic run: no arithmetic, times and bytes as this prices them (synthetic.hpp). nullptr: a real one.
  const CostModel* synthetic = nullptr;
};

struct RunPlan {
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const Schedule> schedule;
  std::vector<ChunkCode> code;   // by virtual stage
  std::vector<RunChunk> chunks;  // by virtual stage
  std::vector<RunChannel> channels;
  std::vector<std::vector<OpVersions>> versions;  // [position][op of the compute stream]
  std::vector<std::vector<WholeAt>> whole;        // likewise; empty: gradients are whole
  std::vector<RunMoves> moves;                    // by position
  Bytes alignment;
  Precision precision = Precision::Fp32;
  double scaled_by = 1;  // RunOptions::loss_scale; gradients are divided by it before the update
  int states = 0;        // of the optimizer, per parameter
  int zero = 0;          // what members divide: training.zero, of weights and gradients where there are copies
  bool synthetic = false;
  std::vector<std::int64_t>
      tied_bytes;  // of a synthetic run: gradients of tied tables, which their holders in a copy sum up

  // Index of the channel that carries micro-batch m over `edge`; and which of its messages that is.
  struct Way {
    int channel = -1;
    std::int32_t number = -1;
  };
  Way way(int edge, bool forward, MicroBatchId m) const {
    return ways_[(at(edge) * 2 + (forward ? 0 : 1)) * at(schedule->shape.micro_batches) + at(m)];
  }
  std::vector<Way> ways_;

  // Of sequences that copies share (plan.context_parallel), or that a worker computes slice by slice (plan.slices).
  bool zigzag = false;
  ContextPart part(CopyId copy, MicroBatchId m) const {
    if (const int slices = schedule->shape.slices; slices > 1) return {m % slices, slices, false};
    return {copy % plan->context_parallel, plan->context_parallel, zigzag};
  }
  // Channel between copies of that position; -1: there is none.
  int between_copies(PositionId position, int ahead) const;
  // Which of the experts a copy holds, among as many devices; and bytes of a chunk's gradients, all that lie side by side,
  // that are summed over all members, or over those that hold the same experts.
  int expert_device(CopyId copy) const { return copy % plan->expert_parallel; }
  struct Stretch {
    std::int64_t begin = 0, end = 0;
    bool of_experts = false;
  };
  std::vector<Stretch> stretches(VirtualStageId v, std::int64_t begin, std::int64_t end) const;
  // Who sends to, and who receives from a worker of that copy.
  WorkerId sender(const RunChannel& channel, CopyId to) const;
  WorkerId receiver(const RunChannel& channel, CopyId from) const;

  const std::vector<Instruction>& line(const Op& op) const;
  // Where slices of a sequence run one after the other each has the number of a micro-batch (ScheduleShape::slices).
  std::int64_t samples(MicroBatchId m) const { return plan->samples(m / schedule->shape.slices); }
  std::size_t size_of(MicroBatchId m) const { return m + 1 == schedule->shape.micro_batches ? 1 : 0; }
  // An update minimises the mean loss over its samples. With a flush these are the global batch, and every
  // micro-batch's loss is scaled by 1 / N. Asynchronous: the loss of a micro-batch is its mean, over the copies' share,
  // and what a stage with r replicas has summed over a round is divided by the round's micro-batches (r; the last round
  // may have fewer). Micro-batches of 2 samples, one copy, r = 2: 1/2, and 1/2.  tests/runtime/execute_test.cpp
  // "averaged"
  // Of sequences in c parts or slices each one's loss is the mean over its tokens, and counts 1 / c.
  float loss_scale(MicroBatchId m) const;
  float gradient_factor(VirtualStageId v, int round) const;

  // Where the parts of a chunk begin, and the last one ends: bytes of its gradients, and of its weights as they are
  // stored.
  std::vector<std::int64_t> gradient_parts(VirtualStageId v) const;
  std::vector<std::int64_t> weight_parts(VirtualStageId v) const;
  // Bytes of a chunk that a worker holds from step to step: all, or room for the longest part.
  std::int64_t held_weights(VirtualStageId v) const;
  std::int64_t held_gradients(VirtualStageId v) const;
};

// Throws InputError where the model cannot be run.
RunPlan run_plan(const Plan& plan, const Schedule& schedule, const Model& model, const Training& training,
                 const Backend& backend, const RunOptions& options = {});

// What a worker at this position will use of its arena over one step, from sizes alone. `steady` blocks (weights,
// gradients, states, slots) first, in the order in which the executor takes them. Throws OutOfArena, where `cap` > 0
// does not hold it, with the op named. `one_by_one`: where ops of a cell do not take turns, as their layers are timed.
ArenaUse replayed(const RunPlan& run, PositionId position, Bytes cap = {}, bool one_by_one = false);

// What a worker holds from the first step to the last, in the order in which it takes it: addresses in the arena.
struct SteadyChunk {
  std::vector<std::int64_t> weights;    // by buffer; one part where they are divided
  std::vector<std::int64_t> gradients;  // by set; likewise
  std::vector<std::int64_t> masters;    // one where weights are copies, else none
  std::vector<std::int64_t> states;
};
struct SteadyBlocks {
  std::vector<SteadyChunk> chunks;               // by virtual stage; those of other stages are empty
  std::vector<std::vector<std::int64_t>> slots;  // [channel][slot]; channels to other positions are empty
};
SteadyBlocks take_steady(const RunPlan& run, PositionId position, Arena& arena);

// Room of whole weights and gradients, taken and given back along a list of ops: addresses in the arena. Chunks without
// parameters have none.
class WholeRoom {
 public:
  WholeRoom(const RunPlan& run, Arena& arena) : run_(run), arena_(arena) {}

  void take_weights(VirtualStageId v);
  void give_weights(VirtualStageId v);
  void take_gradients(VirtualStageId v, std::int32_t turn);
  void give_gradients(VirtualStageId v, std::int32_t turn);
  // -1: there are none.
  std::int64_t weights(VirtualStageId v) const;
  std::int64_t gradients(VirtualStageId v, std::int32_t turn) const;
  bool empty() const { return weights_.empty() && gradients_.empty(); }

 private:
  const RunPlan& run_;
  Arena& arena_;
  std::map<VirtualStageId, std::int64_t> weights_;
  std::map<std::pair<VirtualStageId, std::int32_t>, std::int64_t> gradients_;
};

}  // namespace pipewright::runtime
