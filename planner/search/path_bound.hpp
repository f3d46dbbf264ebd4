// How fast a layout of several chunks per stage can possibly be, whatever the cut: a mean of chains of ops.
//
// In a fixed order an op waits for the one before it on its stage and for its message. So no chain of ops, each of
// which waits for the one before it, takes longer than the step, and no mean of chains does. Let a mean visit chunk V
// F_V times forward and B_V times backward, and pass H messages of at least h each. For a run of equal layers of
// forward f and backward b, of which c_V lie in chunk V, r_V of them rebuilt before their backward,
//     T >= H h + sum_V [ (f F_V + b B_V) c_V + f B_V r_V ] + what the first and the last layer add
// which is linear in c and r, so its least value over all cuts that memory allows bounds every cut's step. That least
// value is the sum of one of each stage, found for every number of layers n_k and of rebuilt ones r_k:
//     n_k in the stage's cheapest chunks that leave the activations room (run_memory.hpp), r_k at the least B_V,
// and a dynamic program deals out sum n_k = N. A stage alone is busy for M (n_k (f + b) + r_k f) and begins k (f + b)
// after the first one: numbers for which that is T' or more are left out, so that T >= min(T', least of what is left),
// for the largest such T'.
//
// Any mean is a bound; a good one weighs the chains so that no chunk is cheaper than another. It comes from lengthening
// the chunks that are visited least, step by step (accelerated mirror descent), while the longest chain is smoothed:
// where two ways into an op are nearly as long, both are taken, each with its share [Nesterov05].
//
// K = 2, v = 2, M = 2, four layers of f = 1, b = 2: one layer per chunk, the only cut, takes 15 ns = M n (f + b) + one
// chunk there and back.             tests/planner/path_bound_test.cpp "by hand", and brute force over all cuts and sets
#pragma once

#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "core/units.hpp"
#include "planner/search/run_memory.hpp"

namespace pipewright::planner {

// What every layer of the model, and every layer that is rebuilt, takes at least.
struct PathProblem {
  const EqualRun& run;
  const Plan& shell;  // with everything but its layers
  const LayerCosts& layers;
  const EqualRunMemory& memory;
  const std::vector<Recompute>& modes;  // that a stage may have
  Time hop;                             // least time of a message between neighbours, but from the last stage back
  bool block = false;                   // the run's layers are blocks: Recompute::Blocks repeats them
};

// A lower bound of the step; as soon as it is `enough` it is not raised further: of stages that are busy for as long it says
// nothing more. `rounds`: steps of the descent.
// 0: none is known, for a schedule with ops other than whole forwards and backwards.
Time path_bound(const PathProblem& problem, Time enough, int rounds);

}  // namespace pipewright::planner
