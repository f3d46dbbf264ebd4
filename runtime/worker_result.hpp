// What a worker leaves behind, step by step, and what all workers' records say together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "core/plan/timeline.hpp"
#include "runtime/arena.hpp"
#include "runtime/backend.hpp"

namespace pipewright::runtime {

// What one worker did in one step.
struct WorkerStep {
  LaneTimes times;
  std::vector<Transfer> transfers;  // sent by this worker
  double loss = 0;                  // sum over its samples of the mean loss of a sample; workers without loss: 0
  std::int64_t samples = 0;         // that it saw the loss of
  Time blocked;                     // of the ops' spans: waiting for a slot at a receiver
  std::int64_t began = 0;           // ns of the clock; times of ops and transfers are of the same clock
  std::int64_t number = 0;          // of the step, from 0
  Time probe;                       // a fixed piece of arithmetic right before the step (measurement.hpp)
};

// How much of a core a thread had while it wanted all of it.
struct CoreUse {
  std::int64_t wall = 0, cpu = 0;  // ns
  std::int64_t interruptions = 0;  // times that the system gave its core to another thread
};

struct WorkerResult {
  std::vector<WorkerStep> steps;  // warm-up included
  ArenaUse memory;                // measured: what the arena handed out
  // Per virtual stage of this worker's stage, laid out as ChunkCode::parameters; others empty.
  std::vector<std::vector<float>> gradients, weights;
  // Where layers are timed: every time that a pass of a layer took, ns, by layer, pass and size of micro-batch (1: the
  // last one), or slice of a sequence; and what ops took beside their layers and messages.
  std::map<std::tuple<LayerId, Pass, int>, std::vector<double>> layer_ns;
  std::vector<double> overhead_ns;
  CoreUse core;                                      // of rounds (LayerRounds)
  std::vector<std::pair<double, double>> update_ns;  // parameters, ns

  // Asynchronous schedules: versions that the forward and the backward of each (virtual stage, micro-batch) read in the
  // last step, in the order of the op list.
  struct VersionsRead {
    VirtualStageId virtual_stage = 0;
    MicroBatchId micro_batch = 0;
    std::int64_t forward = 0, backward = 0;
  };
  std::vector<VersionsRead> versions;
};

// Where layers are timed every step does the same: forgets the steps that are not kept, with their times of layers, of
// updates and of ops. `keep`: by step.
void keep_rounds(WorkerResult& result, const std::vector<char>& keep);
// Puts the steps of `more` behind those of `result`, with their times.
void add_rounds(WorkerResult& result, WorkerResult&& more);

// The timeline of one step of all workers.
Timeline timeline_of(const std::vector<WorkerResult>& workers, std::size_t step);
// Mean loss of a step over all samples.
double loss_of(const std::vector<WorkerResult>& workers, std::size_t step);

}  // namespace pipewright::runtime
