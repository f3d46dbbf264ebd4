// `partition: balanced`: of all cuts with the least largest stage, the one with the shortest simulated step.
//
// With r_k the replicas of stage k,
//     T* = min over cuts of max over k of ceil((f_k + b_k) / r_k)                              (min_max)
//     balanced = the cut with the shortest step among those in which no stage takes longer than T*
// In a steady state T* alone decides. A step with a flush fills and drains, too, and its first and last stages count
// otherwise than those between them: 83 equal layers on 8 stages have T* = 11, and whether stage 0 holds 6 layers and
// the others 11, or the last stage holds 6, changes the step by more than a per cent (docs/decisions/0017).
// How it is searched:
//   - gpipe, 1f1b, eager_1f1b and files of whole backwards, one chunk per stage: `exact` within T*, whose bounds prove
//     most answers after few simulations;
//   - what that leaves open, and all other schedules with a flush: from neighbour to neighbour (`moved`), while
//     that helps;
//   - without a flush, and where one run is so long that not even two fit the limits below: the earliest cuts.
// Limits count what is simulated, never seconds: the same input has the same cut. Where one ends the search, the cut is
// the shortest found. The earliest cuts stay where nothing found is shorter.
//                                                                 tests/planner/balanced_test.cpp "brute force"
#pragma once

#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "core/units.hpp"

namespace pipewright::planner {

// Forward + backward of every layer.
std::vector<Time> layer_loads(const Plan& plan, const CostModel& cost);

// The least largest stage, the earliest cuts: of a plan with its stages, chunks and replicas. Needs no devices.
std::vector<LayerRange> least_largest(const Plan& plan, const CostModel& cost);

// The cut for a plan that has everything but its layers. Steps are those of fixed orders, as in least_step.hpp, or, where
// transfers of the earliest cuts meet on a link, of the engine that shares it. Memory is looked at afterwards: a cut that
// does not fit its devices makes way for the shortest within T* that does, as far as the same search finds one, or for
// the earliest cuts where they do. Where layers to be recomputed are chosen by memory (Recompute::Knapsack), the earliest
// cuts stay if they are not slower with theirs.
std::vector<LayerRange> balanced_layers(const Plan& plan, const CostModel& cost);

// One layer less in chunk `from`, one more in chunk `to`: the cuts between the two shift by a layer. `from` holds two
// layers or more.
//     2 3 3 layers, from 2 to 0: 3 3 2                               tests/planner/balanced_test.cpp "one layer moves"
std::vector<LayerRange> moved(std::vector<LayerRange> cut, int from, int to);

}  // namespace pipewright::planner
