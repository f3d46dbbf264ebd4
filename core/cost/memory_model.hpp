// Memory of a worker: what it holds all the time, and what comes and goes with the ops.
//
//   weights x versions + gradients + optimizer + reserve          all the time; of frozen parameters the weights, once
//   + gathered     weights of a chunk that is sharded, from the start of the op before its first reader to the end of the
//                  last before it is gathered again; counted as weights
//   + unreduced    its gradients of a round, from the start of the first backward to the end of the last; as gradients
//   + stash        activations kept for backward: from the start of F to the end of its backward
//   + logits       what the loss keeps of the logits, likewise
//   + recompute    one micro-batch's activations, rebuilt by R: from the start of R to the end of its backward;
//                  selective, blocks, layers: the largest attention core or rebuilt layer, while a backward runs
//   + workspace    scratch memory of operators, while an op runs
//   + buffers      received activations until their forward begins, received gradients until their backward ends;
//                  buckets while they travel; until they are sent: gradients, and of a virtual stage's own outputs what
//                  its stash does not hold
//
// The sum without the reserve is the model's peak. What the device must have is more:
//
//     need = peak + reserve + rounding + fragmentation * peak
//
// reserve: the device's, and communicators (core/cost/framework_memory.hpp). A measured run (core/question/memory_anchor.hpp)
// adds to the peak and multiplies what comes and goes; the sum of tensors stays what it is.
// rounding: by the device's allocator, a block per layer each for its weights, gradients, optimizer states and stash,
// and one for the boundary. Which tensors a framework keeps is not the same everywhere: where the activations follow
// from operators, the true need is expected between peak + reserve - a and need + a, a = kActivationBand of stash,
// logits, recompute and workspace. Published activations of a Transformer lie 11 to 18 % above a count from first
// principles
// ([GPipe19] table 1); tests/core/memory_operators_test.cpp "need"
//
// A plan that is asked to fit with probability P (plan.fit) must have more: with the true need uniform between low =
// peak + reserve - a and high = need + a, the same place of the range on every stage,
//
//     P(fits) = min over stages of (capacity - low) / (high - low),   so   to_fit = low + P (high - low) <= capacity
//
// and never less than the need, which P up to 1/2 asks for. peak 60, activations 40, reserve 10: a = 6, 64 to 76 B;
// P = 95 %: 64 + 0.95 * 12 = 75.4 where the need is 70. planner/what_if/spread.hpp draws from the same range;
// tests/core/memory_operators_test.cpp "fits with a probability"
//
// `training.framework` adds what a framework holds beside these: core/cost/framework_memory.hpp
//
// Peak without buffers needs no clock: a walk over the op list gives it exactly (`peak`), the simulated time series
// (`series`) confirms it and adds the buffers.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/plan/schedule.hpp"
#include "core/plan/timeline.hpp"

namespace pipewright::core {

struct MemoryBytes {
  Bytes weights;  // all versions
  Bytes gradients;
  Bytes optimizer;
  Bytes stash;
  Bytes logits;
  Bytes recompute;
  Bytes buffers;
  Bytes workspace;
  Bytes reserve;
  Bytes rounding;  // by the allocator; not in the total
  Bytes total() const { return model() + reserve; }
  Bytes model() const { return weights + gradients + optimizer + activations() + buffers; }
  Bytes activations() const { return stash + logits + recompute + workspace; }
  bool operator==(const MemoryBytes&) const = default;
};
constexpr std::array<std::string_view, 9> kMemoryCategories = {
    "weights", "gradients", "optimizer", "stash", "logits", "recompute", "buffers", "workspace", "reserve"};
Bytes category(const MemoryBytes& bytes, std::size_t index);  // in the order of kMemoryCategories

// Bytes of one virtual stage. [0]: full micro-batch, [1]: the last one (the same unless ragged).
struct ChunkMemory {
  Bytes weights, gradients, optimizer;  // of one version; of what is sharded, this worker's share
  // Kept per micro-batch in flight: input boundary + kept tensors (+ passing skips), logits included. Selective
  // recomputation: without the attention cores. Of an output that only other stages keep nothing is kept.
  std::array<Bytes, 2> stash;
  std::array<Bytes, 2> boundary;  // kept per micro-batch when recomputing: input boundary (+ passing skips)
  std::array<Bytes, 2> working;   // rebuilt by R: stash - boundary
  std::array<Bytes, 2> logits;    // of stash and working: what the loss keeps
  // The largest attention core (selective recomputation) or rebuilt layer (blocks, layers): there while a backward
  // runs.
  std::array<Bytes, 2> core;
  std::array<Bytes, 2> workspace;
  // What the allocator adds to weights, gradients and optimizer; to a stash, a boundary and a working set.
  Bytes rounding;
  std::array<Bytes, 2> rounding_stash, rounding_boundary, rounding_working;
  // Where weights or gradients are sharded, what is whole for a while: weights, from the start of the op before the one
  // that they are gathered for; gradients, from the first backward of a round to the end of its last.
  Bytes gathered = {}, unreduced = {};
  // A shard of Resharding::over members, from the end of a forward to the gather for the pass that follows.
  Bytes resharded = {};
  Bytes frozen = {};   // of the weights: no update changes them, so that there is one version of them
  Bytes on_host = {};  // of the optimizer, weights and gradients (training.offload_...): no part of the device's memory
  // A shard that is on its way: weights, from the start of their copy to the end of the gather; gradients, from the end of
  // their reduction to the end of the copy. Counted as buffers.
  Bytes fetched = {}, stored = {};
};

// What a schedule moves to a partner, of one micro-batch: all that it keeps there.
struct MovedStash {
  Bytes stash, rounding;
};
MovedStash moved_stash(const ChunkMemory& chunk, const ScheduleShape& shape, const Op& op);

// Of one virtual stage's messages to another, what it produced itself: tensors that only pass through are in its
// boundary. [0]: full micro-batch, [1]: the last one.
struct ChunkOutput {
  std::array<Bytes, 2> produced;   // all of it: waits in a buffer when the stage keeps its boundary only
  std::array<Bytes, 2> unstashed;  // activation - stash, where a layer keeps less than its output
};

// What the device must have, and the range in which that is expected.
struct MemoryNeed {
  Bytes model;          // exact sum of what the model holds
  Bytes rounding;       // by the allocator
  Bytes fragmentation;  // share of `model`
  Bytes with_reserve;   // model + reserve + rounding + fragmentation
  Bytes capacity;       // of the device
  Bytes low, high;
  Bytes communicators = {};  // of the reserve: groups that communicate, beyond the device's first
  Bytes anchored = {};       // what a measured run adds to `model` (core/question/memory_anchor.hpp); may be below 0
  Bytes to_fit;              // compared with the capacity: with_reserve, and with plan.fit more
  double fit = 0;            // plan.fit, where there is a range and it asks for more than the need; else 0
};
constexpr double kActivationBand = 0.15;
constexpr double kFitByDefault = 0.95;  // what `plan` and `capacity` ask for, and `simulate` warns below

// plan.fit of a model whose activations have a range; 0: none, or no more than 1/2, for which the need must fit.
double fit_asked(const Scenario& scenario);
// The scenario as `plan` and `capacity` take it: where it states no plan.fit, plans fit with kFitByDefault.
Scenario fitting_by_default(Scenario scenario);

// P(fits) above, of one stage: 0 to 1. Without a range: whether it fits.
double fit_probability(const MemoryNeed& need);
// What the true need does not pass with this probability: low + P (high - low). Of 64 to 76 B the 90 % interval, from
// the 5 % to the 95 % quantile, is 64.6 to 75.4 B.
Bytes quantile(const MemoryNeed& need, double probability);

// As it is written: "95 %", "99.5 %".
std::string fit_text(double fit);

// What a framework holds on a stage beside the tensors of its ops: core/cost/framework_memory.hpp
struct FixedMemory {
  Bytes always;   // counted as workspace
  Bytes running;  // likewise, while an op runs
  Bytes between;  // after the step, beside `always`
  bool operator==(const FixedMemory&) const = default;
};

// What a device has, and what of it no model gets.
struct DeviceRoom {
  Bytes reserve;             // of the device, of the pipeline runtime when K > 1, and of communicators
  Bytes capacity;            // of the device
  double fragmentation = 0;  // of the device
  Bytes communicators = {};  // of the reserve
};

struct MemoryModel {
  Indexed<VirtualStageId, ChunkMemory> chunks;
  Bytes reserve;               // as in DeviceRoom, of every stage's devices
  Bytes capacity;              // likewise
  double fragmentation = 0;    // likewise
  double activation_band = 0;  // kActivationBand where activations follow from operators, else 0: they are stated
  double fit = 0;              // as MemoryNeed::fit
  // By sending and receiving virtual stage. Not listed: the sender produced the whole message, and stashes it.
  std::map<std::pair<VirtualStageId, VirtualStageId>, ChunkOutput> outputs = {};
  // By stage, where they differ; then those above are the first stage's, of one device class those of the least.
  Indexed<StageId, DeviceRoom> rooms = {};
  // By stage; none: the framework holds nothing of its own. Where there are some, messages are among them: no buffers.
  Indexed<StageId, FixedMemory> fixed = {};
  double kept_for_weights = 1;  // of what a micro-batch holds, what stays from its B to its W   [ZeroBubble23] table 1
  bool reduces_in_place = false;  // gradients travel from where they lie: no buckets
  Bytes communicators = {};       // as in DeviceRoom
  // From a measured run (MemoryCorrection): added to what the model holds, and factor of what comes and goes.
  Bytes correction = {};
  double activation_factor = 1;

  FixedMemory fixed_of(StageId k) const { return fixed.empty() ? FixedMemory{} : fixed[k]; }
  DeviceRoom room(StageId k) const {
    return rooms.empty() ? DeviceRoom{reserve, capacity, fragmentation, communicators} : rooms[k];
  }
};

MemoryModel memory_model(const Plan& plan, const CostModel& cost);
// The same with the chunks of stage k alone filled in, and without outputs: what `peak` of its workers needs. `layers`:
// CostModel::layers of a full and of the last micro-batch. For searches that ask for many cuts.
MemoryModel memory_of_stage(const Plan& plan, const CostModel& cost, const std::array<LayerCosts, 2>& layers,
                            StageId k);
// Of all stages.
MemoryModel memory_of_stages(const Plan& plan, const CostModel& cost, const std::array<LayerCosts, 2>& layers);
// What a worker of `stage` holds between steps: weights, gradients, optimizer, and what its framework holds then.
Bytes held_between_steps(const MemoryModel& memory, const MemoryBytes& bytes, StageId stage);
// Of a worker of `stage`.
MemoryNeed need(const MemoryModel& memory, const MemoryBytes& bytes, StageId stage);

// MemoryNeed::to_fit less the reserve is the largest of these sums: by what a byte that the model holds counts, what it
// counts on top where it is an activation, and what a byte of rounding counts. For bounds and for searches over sums.
struct NeedSum {
  double model, activation, rounding;
};
std::vector<NeedSum> need_sums(const MemoryModel& memory);  // of the first stage's device
// The one that is the larger as a rule, and by it what a measured run adds (MemoryModel::correction).
NeedSum main_need_sum(const Scenario& scenario, const Device& device);

// One layer of a chunk, per micro-batch in flight: what it stashes, and what is left of that where it keeps its input
// alone and repeats its forward (Plan::rebuilds). The input counts where it is produced or at the boundary, so what is
// left is as a rule its output, the input of the next layer.
//
//     stash = kept tensors (the output, where anybody's backward reads it, included)
//     input = the output, of what the stash holds + what no stash of the chunk holds of its inputs
//     again = stash - the output: there once, while the layer's backward runs; of a chunk the largest
//     (ChunkMemory::core)
//
// Layers that stash 20, 20 and 20 B with outputs of 7 B: 60 B per micro-batch; the last two rebuilt, 20 + 7 + 7 = 34 B
// and 13 B once; 1f1b with 3 in flight 180 and 115 B.              tests/core/memory_model_test.cpp "rebuilt layers"
struct LayerKept {
  Bytes stash, input, again;
  Bytes rounding;  // by the allocator: that of `stash` less that of `input`
};
// [layer of virtual stage v], for costs of one size of micro-batch; whatever the plan recomputes.
std::vector<LayerKept> kept_by_layers(const Plan& plan, const CostModel& cost, const LayerCosts& layers,
                                      VirtualStageId v);

// A message that takes room in a buffer of its sender or of its receiver.
struct BufferedMessage {
  enum class End : std::uint8_t { Receiver, Sender };
  End end = End::Receiver;          // Receiver: arrives, or has arrived and waits for its op; Sender: waits to leave
  VirtualStageId from = 0, to = 0;  // the message's way: of a gradient, against that of the activations
  Direction direction{};
  MicroBatchId micro_batch = 0;
  bool operator==(const BufferedMessage&) const = default;
};

// What took the room: an op that began (compute, or an all-reduce with its bucket and round), or a message.
using MemoryOwner = std::variant<Op, BufferedMessage>;

// An op's label, or PyTorch's name of the message's end: "1RECV_F3" is the input of micro-batch 3 coming in at virtual
// stage 1, "1SEND_B3" its gradient going out. The other end is told where it is no neighbour: "3RECV_F0 from 0".
std::string label(const MemoryOwner& owner);

// The moment of the peak. Bytes are those of that moment.
struct MemoryPeak {
  MemoryBytes bytes;
  MemoryOwner owner;  // what took room when the peak was first reached, of several the largest; none: the first op
  Time at;            // 0 in a walk
  int in_flight = 0;  // most micro-batches (chunks of them) between F and the end of their backward at once
  int weight_versions = 1;
};

// The most of a worker's activations that wait in another memory at once: from a forward's end to the begin of its backward.
Bytes most_away(const MemoryModel& memory, const Schedule& schedule, PositionId position);
// In the host's memory for a device of a stage: activations at most, and the optimizer's states.
Bytes in_host_memory(const MemoryModel& memory, const Schedule& schedule, const Plan& plan, StageId stage);

// Walk over the op list of one position: exact, without buffers, no clock needed.
MemoryPeak peak(const MemoryModel& memory, const Schedule& schedule, PositionId position);

struct MemoryPoint {
  Time at;
  MemoryBytes bytes;    // from `at` to the next point
  MemoryOwner owner{};  // what took room last, of several at one instant the largest
};
// Memory over time of one worker, buffers included; releases come before allocations of the same instant.
std::vector<MemoryPoint> series(const MemoryModel& memory, const Schedule& schedule, const StepCosts& costs,
                                const Timeline& timeline, WorkerId worker);
// The same of all workers, by WorkerId, with one pass over the transfers.
std::vector<std::vector<MemoryPoint>> series(const MemoryModel& memory, const Schedule& schedule,
                                             const StepCosts& costs, const Timeline& timeline);
// The first moment of most bytes of a worker's series.
MemoryPeak peak(const std::vector<MemoryPoint>& series, const Schedule& schedule, WorkerId worker);

// The peaks of all workers, buffers included: the same as peak(series(worker)) for each, with one pass over the
// transfers and no series kept. tests/core/memory_walk_test.cpp
std::vector<MemoryPeak> peaks(const MemoryModel& memory, const Schedule& schedule, const StepCosts& costs,
                              const Timeline& timeline);

}  // namespace pipewright::core
