// Runs a plan for real: every worker (worker.hpp) walks the op list that the simulator priced, in a thread of its own.
// One loop for all schedules, backends and transports.
//
// Times are those of one monotonic clock, from the moment at which all workers have met before a step. An op's span
// begins when its messages are there and ends when it has computed and sent its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/backend.hpp"
#include "runtime/data.hpp"
#include "runtime/run_plan.hpp"
#include "runtime/run_settings.hpp"
#include "runtime/transport.hpp"
#include "runtime/worker_result.hpp"

namespace pipewright::runtime {

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
std::vector<WorkerResult> execute(const RunPlan& run, const BackendMaker& backend, const Data& data,
                                  const std::vector<std::unique_ptr<Transport>>& endpoints, const RunSettings& settings,
                                  const std::function<void(int)>& after_step = {});

class Worker;

// Workers of the plan do their own work again and again, with messages that are always there and a learning rate of 0:
// what layers take on a busy machine. A worker is made when it is first busy, its weights are drawn then, and it stays:
// several loads are measured on the same workers.
class LayerRounds {
 public:
  // `time_layers`: else ops only.
  LayerRounds(const RunPlan& run, BackendMaker backend, const Data& data, RunSettings settings,
              bool time_layers = true);
  ~LayerRounds();

  // For `seconds` all of these workers at the same time, others have no result; empty: all. At least `least` rounds, 3
  // or more. The first and the last one do not count to what is returned: one is cold, in the other a neighbour may
  // have ended. After RunFailed nothing more can be measured.
  std::vector<WorkerResult> measured(double seconds, const std::vector<WorkerId>& busy = {}, int least = 3);

 private:
  const RunPlan& run_;
  BackendMaker backend_;
  const Data& data_;
  RunSettings settings_;
  std::vector<std::unique_ptr<Transport>> endpoints_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::int64_t> rounds_;  // that each has done
  std::vector<int> allowed_;          // cores of who made this: who calls `measured` may be bound to one
};
// Of one load.
std::vector<WorkerResult> measure_layers(const RunPlan& run, const BackendMaker& backend, const Data& data,
                                         RunSettings settings, double seconds, const std::vector<WorkerId>& busy = {});

}  // namespace pipewright::runtime
