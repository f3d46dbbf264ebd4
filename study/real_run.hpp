// A scenario made ready to be run, and run: what the commands that run share.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/answers/report.hpp"
#include "core/question/scenario.hpp"
#include "runtime/backend_of.hpp"
#include "runtime/executor.hpp"
#include "runtime/measurement.hpp"
#include "study/ranks.hpp"

namespace pipewright::study {

class RealRun {
 public:
  // The scenario's plan, compiled. Throws InputError where it cannot be run. `ranks`: the processes that are its
  // workers, if they are not threads.
  explicit RealRun(const Scenario& scenario, Ranks* ranks = nullptr);
  RealRun(const RealRun&) = delete;
  RealRun& operator=(const RealRun&) = delete;

  // Warm-up and timed steps. Throws RunFailed, OutOfArena. Over processes, rank 0 alone has all workers' results, and
  // all ranks must have made the same plan: InputError.
  std::vector<WorkerResult> run(const RunSettings& settings) const;
  RunSettings settings() const;  // as the scenario says
  void check_memory() const;     // throws OutOfArena where the cap does not hold a worker

  // The step of median length as an answer that every writer takes: predicted prices, measured times.
  // The machine in place of the scenario's devices: nothing that follows from their peak or their memory is said.
  Answer measured(const std::vector<WorkerResult>& results, const StepTimes& times) const;
  const Answer& predicted() const { return predicted_; }
  const RunPlan& run_plan() const { return run_plan_; }
  const Data& data() const { return *data_; }
  const BackendMaker& backend() const { return backend_; }
  std::string backend_name() const;
  const Scenario& scenario() const { return *scenario_; }
  Ranks* ranks() const { return ranks_; }
  // Over processes: all have made the same plan, for as many workers. Throws InputError.
  void check_alike(const RunSettings& settings) const;
  bool synthetic() const;       // no arithmetic: stated times, stated bytes
  int cores() const;            // that the workers may use
  std::string workers() const;  // "2 workers (threads)"

 private:
  std::shared_ptr<const Scenario> scenario_;
  Ranks* ranks_;
  Answer predicted_;  // plan, schedule, prices, memory
  BackendMaker backend_;
  RunPlan run_plan_;
  std::unique_ptr<Data> data_;
};

// The arena's figures in place of the memory model's: what is counted, resp. measured, here.
MemoryBytes memory_bytes(const ArenaUse& use);

// What is to be said wherever times of a synthetic run are shown.
constexpr std::string_view kSynthetic = "synthetic: times are the stated ones, no arithmetic was done";

// The scenario with links as the transport makes them (`throttled`: the cluster's; else none of their own).
Scenario with_links_as_run(Scenario scenario);
// Likewise, with prices from the profile.
Scenario priced_with(const Scenario& scenario, MachineProfile profile);

// A plan is cut by prices, and a run needs no others: where the scenario's device states no peak of the precision,
// layers are weighed by the largest that it states. A share of time that no figure shows.
Scenario with_a_peak(Scenario scenario);
// Throws InputError where the scenario cannot be run, as far as that shows without a device: plan, layers, settings.
void check_can_run(const Scenario& scenario);
// Throws InputError where the backend does not compute in the scenario's precision.
void check_precision(const Scenario& scenario);

// One profile of this machine that prices all these runs: their layers and messages, all workers busy, for about
// `seconds` each. Throws RunFailed, CalibrationEnded.
MachineProfile calibrated(const std::vector<const RealRun*>& runs, double seconds, const std::string& name);

// "" or a sentence on how what runs here differs from what was measured.
std::string other_machine(const MachineProfile& profile, const Backend& backend);
// Warns of it, where the run is priced with a profile.
void note_other_machine(const RealRun& real);

// ---- gradients of the first step of a run, and how far those of two runs lie apart

using Gradients = std::vector<std::vector<float>>;  // by virtual stage, laid out as ChunkCode::parameters

// Of one step, before the update. Over processes rank 0 has them all, others nothing. Throws RunFailed, OutOfArena.
// By device of a group that holds the experts between them, of the last copy that has them; one where there is no group.
std::vector<Gradients> pipelined_gradients(const RealRun& run, RunSettings settings);

struct Difference {
  std::size_t values = 0, differing = 0;
  double relative = 0;  // ||got - reference||_2 / ||reference||_2; of a reference that is zero: 0 or infinity
};
// Values that `got` lacks count as zero.
Difference difference(std::span<const float> got, std::span<const float> reference);

}  // namespace pipewright::study
