// The cut with the least simulated step for a plan that has everything but its layers.
#pragma once

#include <string>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"

namespace pipewright::planner {

struct LeastStepPlan {
  std::vector<LayerRange> layers;
  std::string how;  // one line for the report: proven, or the gap that is left; how many cuts were simulated
};

// Why this search is not for the plan, or "": it is for one chunk per stage without replicas, equal micro-batches, and
// gpipe, 1f1b, eager_1f1b or the order of a file whose backwards are whole.
std::string least_step_refusal(const Plan& plan);

// Whether something passes from each stage to the next one under any cut: else stages may run side by side, as branches
// do whose tensors go to their users directly, and no bound may count them one after the other.
bool every_cut_is_crossed(const Scenario& scenario);

// Every cut is priced as `simulate` prices it by fixed orders (transfers, all-reduces, recomputation included; sharing
// of links is not), and bounded by its layers' times and the fastest hop between neighbours (`exact`). Memory is not
// looked at. The search ends after 2000 simulations, and then says how far from the optimum it may be; the balanced cut
// (balanced.hpp) is taken where it is shorter than what was found.
LeastStepPlan least_step(const Plan& plan, const CostModel& cost);

}  // namespace pipewright::planner
