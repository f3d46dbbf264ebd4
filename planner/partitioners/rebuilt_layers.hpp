// Recomputation by layer on a plan: the set of layers of a stage that keep their input only, by the knapsack of
// recompute_knapsack.hpp over what the memory model says of each layer (kept_by_layers).
#pragma once

#include <array>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/schedule.hpp"
#include "core/units.hpp"

namespace pipewright::planner {

struct RebuiltStage {
  std::vector<LayerId> layers;  // ascending; empty: everything is kept
  Time extra;                   // what they add to the stage's backward, on the device
  Bytes need;                   // of a device (MemoryNeed::to_fit) over the stage's list of ops, buffers left out
  bool fits = false;            // else `layers` is the set that needs least
};

// All for clusters of one device class.
//
// The set for stage k of a plan that has its layers; what the plan recomputes on stage k does not matter. One chunk per
// stage, no weight versions, micro-batches of one size: no set that fits adds less (but for RebuildSet::slack, and
// bytes where fragmentation is a share). Else the micro-batches in flight at other moments than the peak count as well,
// and the answer is a set that fits, found by asking for more until the walk agrees. `layers`: CostModel::layers of a
// full and of the last micro-batch. `schedule`: of the plan without full recomputation on the stage; as many
// micro-batches as its peak needs.
RebuiltStage rebuild_stage(const Plan& plan, const CostModel& cost, const std::array<LayerCosts, 2>& layers,
                           const Schedule& schedule, StageId k, Bytes room);

// The set that needs least memory.
RebuiltStage least_need_of_stage(const Plan& plan, const CostModel& cost, const std::array<LayerCosts, 2>& layers,
                                 const Schedule& schedule, StageId k);

// Settles every stage that asks for Recompute::Knapsack: Layers and Plan::rebuilt, or None. A finished plan but for
// that. Buffers need a clock: the plan is simulated, and what they take on a stage that then does not fit is set aside
// before the next try.
void choose_rebuilt(Plan& plan, const CostModel& cost);

// The plan with Recompute::Knapsack where the scenario asks for it: for searches of other cuts.
Plan asking_again(Plan plan, const Scenario& scenario);

}  // namespace pipewright::planner
