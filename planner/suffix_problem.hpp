// The problem of partitioners/suffix_dp.hpp for a plan that has everything but its stages: bytes, times and links as
// the cost model and the memory model count them.
#pragma once

#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "planner/partitioners/suffix_dp.hpp"

namespace pipewright::planner {

// Of the shell of planner/replicated.hpp, layer by layer, for all device classes of the cluster. Backwards: as placed
// by `replicated_plans`. Anywhere: of every contiguous plan, under-estimated. Throws InputError when a tensor-parallel
// group does not fit the cluster, or a layer has no times.
SuffixProblem suffix_problem(const Plan& shell, const CostModel& cost, StagePlaces places);

// Workers of a node: groups of t devices, t = tensor_parallel.
int workers_per_node(const Plan& shell, const Cluster& cluster);

// Layers that take no time and have no parameters do not decide where work lies: of the cuts between two layers that
// do, the one with the fewest bytes is kept (of several the first). Every entry of the result is a range of layers.
struct Folded {
  SuffixProblem problem;
  std::vector<LayerRange> layers;
};
Folded folded(const SuffixProblem& whole);

}  // namespace pipewright::planner
