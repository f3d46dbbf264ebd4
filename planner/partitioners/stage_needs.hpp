// Memory of a stage for any range of layers, as a search asks for it: many ranges of one plan.
#pragma once

#include <array>
#include <map>
#include <tuple>

#include "core/cost/cost_model.hpp"
#include "core/cost/memory_model.hpp"
#include "core/plan/plan.hpp"
#include "planner/partitioners/rebuilt_layers.hpp"

namespace pipewright::planner {

// `plan` has everything but its layers, and one chunk per stage.
class StageNeeds {
 public:
  StageNeeds(const Plan& plan, const CostModel& cost);
  StageNeeds(const Plan&, CostModel&&) = delete;
  // With the figures of cost.layers(plan.micro_batch_size), where the caller has them; micro-batches of one size.
  StageNeeds(const Plan& plan, const CostModel& cost, const LayerCosts& layers);
  StageNeeds(const Plan&, CostModel&&, const LayerCosts&) = delete;

  // What a device of stage k must have to hold these layers (MemoryNeed::to_fit), buffers left out: a walk over
  // the stage's list of ops. Asked once per range.
  //
  // Under 1f1b and eager_1f1b the list repeats itself once 2K micro-batches have begun, so a longer step is walked for
  // 2K + 1 micro-batches only.                       tests/planner/stage_needs_test.cpp "a short walk finds the peak"
  //
  // Where the plan asks for Recompute::Knapsack on the stage: with the set of layers that needs least.
  Bytes need(StageId k, LayerRange range);

  // The set of these layers that adds least to the backward and fits `room` (rebuild_stage).
  RebuiltStage rebuilt(StageId k, LayerRange range, Bytes room);

  Bytes capacity() const { return cost_.scenario().cluster.device.memory; }

  // Whether a later begin never needs more: no cut inside the model carries more bytes than the cut before it.
  bool tensors_do_not_grow() const;

 private:
  void lay_out(StageId k, LayerRange range);

  Plan plan_;
  const CostModel& cost_;
  std::array<LayerCosts, 2> costs_;
  LayerId layers_ = 0;
  Schedule schedule_;
  std::map<std::tuple<StageId, LayerId, LayerId>, Bytes> known_;
};

}  // namespace pipewright::planner
