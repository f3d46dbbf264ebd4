// How fast a layout can possibly be when most of the model is a run of equal layers, as Transformers are: whole layers and
// the memory of the devices counted.
#pragma once

#include <optional>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "core/units.hpp"
#include "planner/search/run_memory.hpp"

namespace pipewright::planner {

// The longest run of a model; none, where it is not half of it.
std::optional<EqualRun> equal_run(const Model& model, const LayerCosts& costs);

// A stage with n layers of the run in v chunks, one at least in each, has at any moment at least
//     sum_j c_j + (n - v) min_j c_j          layers' worth in flight,   c_j: micro-batches in flight of its chunk j
// so that its recomputation is no lighter than the lightest under which that fits. With u the forward and backward of
// one layer, x_k(n) what the recomputation adds, and h_k what stage k must hold besides (the first layer on stage 0,
// the last one on stage K-1),
//     T >= min over n_0 + .. + n_{K-1} = N   max_k [ k u + M (n_k u + x_k(n_k) + h_k) ]
// as stage k begins, and ends, with at least one layer of each stage before it in between; where the first layer of the
// model may have stage 0 (or the first of its chunks) to itself, h_0 stands for that u. Where a schedule splits the
// backward, stages before k may end with their weights' gradients: k f in place of k u, f the forward of one layer.
//     N = 80, K = 8, M = 64, u = 1, h_7 = 1.139: stage 0 has 11, the others 10 or less: 704 = 11 M
//                                                               tests/planner/search_test.cpp "a run of equal layers"
// Where more layers than the first and the last one are not of the run (DeepSeek-V3: 3 dense ones, and the module for the
// next token), they are left out above, u in k u is the least of any layer between the first and the last, and the work of
// all stages together, least recomputation included, is divided evenly as well:
//     T >= [ sum_k k u + M (min over n of sum_k (n_k u + x_k(n_k) + h_k) + what is left out) ] / K
// `shell`: the layout's plan; `modes`: the recomputations allowed, lightest first. kNever where no n fits at all.
Time run_bound(const EqualRun& run, const Plan& shell, const CostModel& cost, const LayerCosts& layers,
               const std::vector<Recompute>& modes);

}  // namespace pipewright::planner
