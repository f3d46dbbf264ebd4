// Runs a plan for real: every worker walks the op list that the simulator priced. One loop for all schedules, backends
// and transports.
//
// Times are those of one monotonic clock, from the moment at which all workers have met before a step. An op's span
// begins when its messages are there and ends when it has computed and sent its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/plan/timeline.hpp"
#include "runtime/arena.hpp"
#include "runtime/backend.hpp"
#include "runtime/data.hpp"
#include "runtime/run_plan.hpp"
#include "runtime/transport.hpp"

namespace pipewright {

class Checkpoints;

struct RunSettings {
  OptimizerSettings optimizer;
  std::uint64_t seed = 1;
  int steps = 23, warmup = 3;  // of the whole run; the first `warmup` of the steps are not timed
  Bytes memory_cap;            // of the arena's extent; 0: none
  bool pin = true;             // worker w on core w, while there are as many
  std::optional<int> core;     // where this process has one worker: its core instead; -1: none
  // Tests and checks: keep the gradients of the first step as they are before the update (after the all-reduce), and
  // the weights of the end.
  bool keep_gradients = false, keep_weights = false;
  bool poison = false;  // fills freed memory with NaN: what is read too late shows
  bool time_layers = false;
  // Where the run goes on from, and leaves its state: steps before its first_step() are done and not run again.
  const Checkpoints* checkpoints = nullptr;
};

// What one worker did in one step.
struct WorkerStep {
  LaneTimes times;
  std::vector<Transfer> transfers;  // sent by this worker
  double loss = 0;                  // sum over its samples of the mean loss of a sample; workers without loss: 0
  std::int64_t samples = 0;         // that it saw the loss of
  Time blocked;                     // of the ops' spans: waiting for a slot at a receiver
  std::int64_t began = 0;           // ns of the clock; times of ops and transfers are of the same clock
  std::int64_t number = 0;          // of the step, from 0
};

struct WorkerResult {
  std::vector<WorkerStep> steps;  // warm-up included
  ArenaUse memory;                // measured: what the arena handed out
  // Per virtual stage of this worker's stage, laid out as ChunkCode::parameters; others empty.
  std::vector<std::vector<float>> gradients, weights;
  // Where layers are timed: every time that a pass of a layer took, ns, by layer, pass and size of micro-batch (1: the
  // last one); and what ops took beside their layers and messages.
  std::map<std::tuple<LayerId, Pass, int>, std::vector<double>> layer_ns;
  std::vector<double> overhead_ns;
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

// A run that failed: which worker, at which op, why. The steps that all workers finished are kept.
class RunFailed : public std::runtime_error {
 public:
  RunFailed(const std::string& message, std::vector<WorkerResult> so_far)
      : std::runtime_error(message), results(std::move(so_far)) {}
  std::vector<WorkerResult> results;
};

// Runs the workers that `endpoints` has an endpoint for (nullptr: another process'), each in a thread of its own, and
// returns their results, by WorkerId; those of other processes are empty. `after_step` is called by the lowest worker
// here after every step. Throws OutOfArena before anything runs where the cap does not hold a worker; RunFailed when a
// worker fails: out of memory, a loss that is no number, a silent peer.
std::vector<WorkerResult> execute(const RunPlan& run, const std::function<std::unique_ptr<Backend>()>& backend,
                                  const Data& data, const std::vector<std::unique_ptr<Transport>>& endpoints,
                                  const RunSettings& settings, const std::function<void(int)>& after_step = {});

// Every worker of the plan does its own work again and again for `seconds`, at the same time as all others, with
// messages that are always there and a learning rate of 0: what layers take on a busy machine. At least twelve rounds,
// the first of which is not counted. `only`: that worker alone; others have no result.
std::vector<WorkerResult> measure_layers(const RunPlan& run, const std::function<std::unique_ptr<Backend>()>& backend,
                                         const Data& data, RunSettings settings, double seconds,
                                         std::optional<WorkerId> only = {});

// The timeline of one step of all workers.
Timeline timeline_of(const std::vector<WorkerResult>& workers, std::size_t step);
// Mean loss of a step over all samples.
double loss_of(const std::vector<WorkerResult>& workers, std::size_t step);

}  // namespace pipewright
