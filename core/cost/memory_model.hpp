// Memory of a worker: what it holds all the time, and what comes and goes with the ops.
//
//   weights x versions + gradients + optimizer + reserve          all the time
//   + stash        activations kept for backward: from the start of F to the end of its backward
//   + recompute    one micro-batch's activations, rebuilt by R: from the start of R to the end of its backward
//   + buffers      received tensors until their op begins, buckets while they travel; until they are sent: gradients,
//                  and of a virtual stage's own outputs what its stash does not hold
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

namespace pipewright {

struct MemoryBytes {
  Bytes weights;  // all versions
  Bytes gradients;
  Bytes optimizer;
  Bytes stash;
  Bytes recompute;
  Bytes buffers;
  Bytes reserve;
  Bytes total() const { return weights + gradients + optimizer + stash + recompute + buffers + reserve; }
  bool operator==(const MemoryBytes&) const = default;
};
constexpr std::array<std::string_view, 7> kMemoryCategories = {"weights",   "gradients", "optimizer", "stash",
                                                               "recompute", "buffers",   "reserve"};
Bytes category(const MemoryBytes& bytes, std::size_t index);  // in the order of kMemoryCategories

// Bytes of one virtual stage. [0]: full micro-batch, [1]: the last one (the same unless ragged).
struct ChunkMemory {
  Bytes weights, gradients, optimizer;  // of one version
  std::array<Bytes, 2> stash;     // kept per micro-batch in flight: input boundary + kept tensors (+ passing skips)
  std::array<Bytes, 2> boundary;  // kept per micro-batch when recomputing: input boundary (+ passing skips)
  std::array<Bytes, 2> working;   // rebuilt by R: stash - boundary
};

// Of one virtual stage's messages to another, what it produced itself: tensors that only pass through are in its
// boundary. [0]: full micro-batch, [1]: the last one.
struct ChunkOutput {
  std::array<Bytes, 2> produced;   // all of it: waits in a buffer when the stage keeps its boundary only
  std::array<Bytes, 2> unstashed;  // activation - stash, where a layer keeps less than its output
};

struct MemoryModel {
  std::vector<ChunkMemory> chunks;
  Bytes reserve;   // of the device
  Bytes capacity;  // of the device
  // By sending and receiving virtual stage. Not listed: the sender produced the whole message, and stashes it.
  std::map<std::pair<VirtualStageId, VirtualStageId>, ChunkOutput> outputs = {};
};

MemoryModel memory_model(const Plan& plan, const CostModel& cost);

// A message that takes room in a buffer of its sender or of its receiver.
struct BufferedMessage {
  Kind end = Kind::Recv;            // Recv: arrives, or has arrived and waits for its op; Send: waits to leave
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

}  // namespace pipewright
