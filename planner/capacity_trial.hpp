// One value of a search for the largest that fits (planner/capacity.hpp): the scenario with it, its plan, and whether
// that fits.
//
// Which cut is asked for:
//   one chunk per stage, partition balanced or fitting   the cut with the least bottleneck of those that fit
//   several chunks per stage, or another partition       the scenario's own
//   of a real run                                        the cut that the run takes
//
// tests/planner/capacity_test.cpp
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/cost/memory_model.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/schedule.hpp"
#include "core/question/scenario.hpp"
#include "planner/price.hpp"

namespace pipewright::planner {

// What a worker of a real run takes of its memory.
struct RunMemory {
  MemoryBytes bytes;  // at its live peak
  Bytes extent;       // highest address: what a cap acts on; gaps included
};
// By position. Throws InputError for what cannot be run.
using RunMemoryOf = std::function<std::vector<RunMemory>(const Scenario&, const Plan&, const Schedule&)>;

class CapacityTrial {
 public:
  // `run_memory`: null, or what a run takes decides. Throws InputError for a value that makes no scenario.
  CapacityTrial(Scenario scenario, const RunMemoryOf* run_memory);

  const Scenario& scenario() const { return *scenario_; }
  const Plan& plan() const { return plan_; }
  const std::string& partition() const { return partition_; }
  bool cut_is_searched() const { return searched_; }
  // Whether the cut depends on the layers alone, not on their prices or on memory.
  bool cut_is_stated() const;

  // Of the memory of all workers of a copy: the training state of the whole model, and with it what one micro-batch
  // keeps. All stages keep that when its forward ends on the last one, so nothing above 1 fits, whatever the cut and
  // the schedule. Two workers of 16 B, 24 B of state, 4 B kept: 0.75 and 0.875. Of a run the state alone.
  double state_share() const { return share(false); }
  double held_share() const { return share(true); }
  // What a worker may fill with tensors: what a measured run holds beside them is left out.
  Bytes room() const;

  // Whether the scenario's own cut, which is not looked at where a better one is searched, is that of the answer.
  bool cut_as_stated() const { return !balanced_ || answer().plan.layers == plan_.layers; }
  bool stated_cut_fits() const;

  // Without buffers: quick, and never wrong about what does not fit.
  bool may_fit() const;
  bool fits() const { return run_memory_ != nullptr ? extent() <= room() : answer().report.fits; }

  // Of a real run, by position.
  const std::vector<RunMemory>& run_memory() const;

  // Priced with its cut: the one that fits, or else comes nearest.
  const Answer& answer() const;

  // The least memory per device with which a cut fits.
  Bytes least_memory() const;

  // How long it takes to look at, in layers: 16 ops of a copy's schedule take about as long as one of them.
  std::int64_t work() const;

 private:
  double share(bool with_kept) const;
  Bytes kept(const ChunkMemory& chunk) const;  // of one micro-batch; 0 where its layers are chosen or stages differ
  Bytes extent() const;                        // of the worker that takes most
  void set_run_memory(Report& report) const;

  std::shared_ptr<Scenario> scenario_;
  const RunMemoryOf* run_memory_;
  bool searched_ = false;
  bool balanced_ = false;  // searched, where the scenario asks for the balanced cut
  std::string partition_;
  std::unique_ptr<CostModel> cost_;
  Plan plan_;
  mutable std::vector<RunMemory> in_run_;
  mutable std::unique_ptr<Answer> answer_;
};

}  // namespace pipewright::planner
