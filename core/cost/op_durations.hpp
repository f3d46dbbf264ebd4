// What the ops of a step take, and when their backwards have gradients complete: the part of step_costs that sums the
// layers' times, as the host issues them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/cost/state_exchange.hpp"
#include "core/cost/step_costs.hpp"
#include "core/plan/plan.hpp"

namespace pipewright::core {

// The layers' figures as each stage's devices have them: by class, only those that the plan uses filled in.
class OnStages {
 public:
  OnStages(const Plan& plan, const CostModel& cost, std::int64_t samples, int active = 0,
           std::optional<int> slice = {});
  // On devices of one class: these, which have to outlive it.
  explicit OnStages(const LayerCosts& alike) : alike_(&alike) {}
  explicit OnStages(LayerCosts&&) = delete;

  int class_of(StageId k) const { return alike_ != nullptr ? 0 : class_of_stage_[k]; }
  const LayerCosts& of(StageId k) const { return alike_ != nullptr ? *alike_ : by_class_[at(class_of(k))]; }

 private:
  const LayerCosts* alike_ = nullptr;
  std::vector<LayerCosts> by_class_;
  Indexed<StageId, int> class_of_stage_;
};

// Of full micro-batches, as StepCosts::duration. `amax_reduction`: by stage; empty: there are none.
std::vector<Time> op_durations(const Plan& plan, const OnStages& on_stages, const CostModel& cost,
                               const std::vector<Time>& amax_reduction);

// The optimizer's step over the parameters of these layers and of copied tables (core/plan/tied_tables.hpp), then the casts of
// what it has made.
Time update_time(const Plan& plan, StageId stage, const Scenario& scenario, const CostSource& source, LayerRange layers,
                 std::int64_t copied);

// Backward runs from the last layer to the first: a bucket is complete when only the layers before its first one are
// left, whether the worker then waits (at once) or goes on. Blocking: all buckets wait for the end of the backward.
std::vector<std::vector<Time>> ready_before_end(const Plan& plan, const CostModel& cost, const OnStages& on_stages);

// Forwards of every unit but the first, whose gather is waited for.
void delay_late_gathers(const StepCosts& costs, std::vector<Time>& duration, const Plan& plan, const CostModel& cost,
                        const OnStages& on_stages);

// Of a chunk whose buckets are gathered one after the other while its first forward runs: what is over before it begins,
// so that it finds each bucket there, and the rest. Buckets of 2 ms each, and 3 ms of forward: 2 ms, then 2 ms beside it.
//                                                               tests/planner/zero_one_test.cpp
std::pair<Collective, Collective> beside_forward(
    const Plan& plan, VirtualStageId v, const CostModel& cost, const OnStages& on_stages,
    const std::function<Collective(StageId, const StateExchange::Share&)>& gather);

}  // namespace pipewright::core
