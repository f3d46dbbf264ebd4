#include "planner/capacity_trial.hpp"

#include <algorithm>
#include <utility>

#include "core/cost/buckets.hpp"
#include "core/cost/framework_memory.hpp"
#include "core/folds.hpp"
#include "core/question/memory_anchor.hpp"
#include "planner/find_plan.hpp"
#include "planner/partitioners/fitting.hpp"
#include "planner/partitioners/rebuilt_layers.hpp"
#include "planner/plan_errors.hpp"
#include "planner/sharding.hpp"

namespace pipewright::planner {

CapacityTrial::CapacityTrial(Scenario scenario, const RunMemoryOf* run_memory)
    : scenario_(std::make_shared<Scenario>(std::move(scenario))), run_memory_(run_memory) {
  if (run_memory_ != nullptr) {
    partition_ = "the cut that a run takes";
  } else if (std::holds_alternative<Balanced>(scenario_->plan.partition.value)) {
    const PlanRequest& plan = scenario_->plan;
    const bool in_units = scenario_->training.zero >= kWeightsSharded &&
                          (plan.data_parallel.value > 1 || plan.context_parallel.value > 1);
    const bool moves = moves_activations(*scenario_);
    searched_ = balanced_ = plan.virtual_stages.value == 1 && !both_ways(chunk_order_of(plan)) && !in_units && !moves;
    partition_ = searched_  ? "the cut with the least bottleneck among those that fit"
                 : in_units ? "the balanced cut (its weights are gathered in units)"
                 : moves    ? "the balanced cut (activations wait in another memory)"
                            : "the balanced cut (several chunks share a device)";
  } else if (std::holds_alternative<Fitting>(scenario_->plan.partition.value)) {
    searched_ = !moves_activations(*scenario_);  // find_plan refuses those
    partition_ = "the cut with the least bottleneck among those that fit";
  } else {
    partition_ = "the cut that the scenario states";
  }
  refuse_classes(scenario_->cluster, scenario_->cluster.place, "capacity");
  // Sizes do not depend on it, and errors of the plan show before any search.
  if (searched_) scenario_->plan.partition.value = Balanced{};
  cost_ = std::make_unique<CostModel>(scenario_);
  plan_ = find_plan(*scenario_, *cost_);
  if (searched_) plan_ = asking_again(std::move(plan_), *scenario_);
}

bool CapacityTrial::cut_is_stated() const {
  const Partition& partition = scenario_->plan.partition.value;
  return std::holds_alternative<LayerCounts>(partition) || std::holds_alternative<CutLayers>(partition) ||
         std::holds_alternative<EqualLayers>(partition) || std::holds_alternative<EqualBlocks>(partition);
}

double CapacityTrial::share(bool with_kept) const {
  Plan whole = plan_;
  const auto layers = static_cast<LayerId>(scenario_->model.layers.size());
  whole.layers.assign(whole.layers.size(), {layers, layers});
  whole.layers.front() = {0, layers};
  const ChunkMemory chunk = memory_model(whole, *cost_).chunks.front();
  auto held = static_cast<double>((chunk.weights + chunk.gradients + chunk.optimizer).value);
  // Of a factor above 1 nothing is sure: at its peak a worker may hold less activations and more versions of weights.
  if (with_kept && run_memory_ == nullptr)
    held += std::min(correction_of(*scenario_).activations, 1.0) * static_cast<double>(kept(chunk).value);
  const double room_of_all = static_cast<double>(std::max<std::int64_t>(room().value, 1)) * plan_.stages;
  return held / room_of_all;
}

Bytes CapacityTrial::kept(const ChunkMemory& chunk) const {
  const auto& modes = plan_.recompute;
  const Recompute mode = modes.front();
  const bool alike = std::ranges::all_of(modes, [&](Recompute each) { return each == mode; });
  if (!alike || mode == Recompute::Layers || mode == Recompute::Knapsack) return {};
  const auto& bytes = mode == Recompute::Full ? chunk.boundary : chunk.stash;
  return std::min(bytes[0], bytes[1]);
}

Bytes CapacityTrial::room() const {
  const Device& device = scenario_->cluster.device;
  if (run_memory_ != nullptr && scenario_->run.memory_cap) return *scenario_->run.memory_cap;
  const MemoryCorrection& correction = correction_of(*scenario_);
  return device.memory - correction.reserve.value_or(device.reserve) - correction.held;
}

bool CapacityTrial::stated_cut_fits() const {
  Plan plan = plan_;
  choose_rebuilt(plan, *cost_);
  return price(plan, *cost_, Engine::Auto).report.fits;
}

bool CapacityTrial::may_fit() const {
  return held_share() <= 1 && (searched_ ? some_cut_fits(plan_, *cost_) : fits());
}

const std::vector<RunMemory>& CapacityTrial::run_memory() const {
  if (in_run_.empty())
    in_run_ = (*run_memory_)(*scenario_, plan_,
                             make_schedule(plan_, schedule_shape(plan_, scenario_->model, scenario_->training)));
  return in_run_;
}

const Answer& CapacityTrial::answer() const {
  if (!answer_) {
    Plan plan = plan_;
    if (searched_) {
      plan.layers = fitting_layers(plan_, *cost_).layers;
      choose_rebuilt(plan, *cost_);
    }
    answer_ = std::make_unique<Answer>(price(plan, *cost_, Engine::Auto));
    if (run_memory_ != nullptr) set_run_memory(answer_->report);
  }
  return *answer_;
}

Bytes CapacityTrial::least_memory() const {
  if (run_memory_ != nullptr) return extent();
  if (searched_) return planner::least_memory(asking_again(answer().plan, *scenario_), *cost_);
  return most_over<Bytes>(answer().report.workers, [](const WorkerReport& worker) { return worker.need.to_fit; });
}

std::int64_t CapacityTrial::work() const {
  const std::int64_t ops = std::int64_t{3} * plan_.chunks() * plan_.micro_batches;
  return static_cast<std::int64_t>(scenario_->model.layers.size()) + ops / 16;
}

Bytes CapacityTrial::extent() const {
  return most_over<Bytes>(run_memory(), &RunMemory::extent);
}

void CapacityTrial::set_run_memory(Report& report) const {
  for (WorkerReport& worker : report.workers) {
    const RunMemory& memory = run_memory()[at(worker.id % plan_.positions())];
    worker.memory.bytes = memory.bytes, worker.need.with_reserve = worker.need.to_fit = memory.extent;
    StageReport& stage = report.stages[at(worker.stage)];
    if (stage.workers.front() == worker.id || memory.extent > stage.need.to_fit)
      stage.memory = worker.memory, stage.need = worker.need;
  }
}

}  // namespace pipewright::planner
