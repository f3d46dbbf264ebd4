// What a stage must have for layers of a run of equal ones, at least: never more than any cut needs.
//
// With c_j micro-batches in flight of chunk j at some moment, and n layers of the run on the stage, n_j in chunk j,
//     need >= n S + sum_j c_j n_j w                          S: states of a layer; w: what one keeps per micro-batch
// A layer that is rebuilt keeps its input only and frees `freed` of that, so r of them free no more than r max_j c_j
// `freed`. Where weights that are divided stay whole until the end of the step (plan.reshard_after_forward: false in a
// pipeline), or gradients are divided behind the last micro-batch alone, S has them whole at a moment at which every chunk
// of the stage has run, and has been accumulated.   tests/planner/path_bound_test.cpp "whole until the end of the step"
// w is the least that a layer adds to a chunk, its input with it: that of a chunk of one layer, boundary and
// all, or what the second layer of a chunk adds.                tests/planner/search_test.cpp "a run of equal layers"
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/cost/memory_model.hpp"
#include "core/plan/plan.hpp"

namespace pipewright::planner {

// Layers [begin, end) of a model form a chain, cost and hold the same.
struct EqualRun {
  LayerId begin = 0, end = 0, layers = 0;  // of all layers of the model
  int size() const { return end - begin; }
  int behind() const { return layers - end; }
  // Whether what is before and behind is at most one layer each.
  bool nearly_all() const { return begin == 1 && behind() <= 1; }
};

// Micro-batches in flight at one moment on a stage: by chunk, of all its chunks that hold layers of the run for
// certain, and of the chunks that have fewest and most. n layers in v such chunks then have at least
// `all` + (n - v) `fewest` layers' worth in flight.
struct InFlight {
  std::int64_t chunks = 0, all = 0, fewest = 0, most = 0;
  std::vector<std::int64_t> of_chunk;
  bool all_ran = false, all_accumulate = false;  // chunks of the stage: forward; backward, but not of every micro-batch
};

class EqualRunMemory {
 public:
  EqualRunMemory(const EqualRun& run, const Plan& shell, const CostModel& cost, const LayerCosts& layers);
  EqualRunMemory(const EqualRun&, const Plan&, CostModel&&, const LayerCosts&) = delete;

  // False: n layers of the run on stage k do not fit with this recomputation, however they lie in its chunks.
  bool fits(StageId k, int layers, Recompute mode) const;

  // Of n layers, how many at least keep their input only where a set of layers does: each frees what it keeps, less its
  // output, in no more micro-batches than the fullest chunk has in flight. More than n: not even all are enough.
  int least_rebuilt(StageId k, int layers) const;

  // The same for layers that are told apart by their chunks: the sum of c_j n_j, over the chunks of stage k at the
  // moment `fullest`, that n layers may have where r of them are rebuilt. Below zero: not even none.
  double most_in_flight(StageId k, int layers, int rebuilt) const;
  const InFlight& fullest(StageId k) const;

 private:
  enum { kWithout, kInFull };  // moments differ: a stage that recomputes in full runs R before its backwards

  void measure(Recompute mode, const EqualRun& run, const LayerCosts& layers);
  double states(const InFlight& now, int layers) const;
  double room(const InFlight& now, int layers) const;  // for activations, of any of the sums that must fit
  double in_flight_bytes(const InFlight& now, int layers, Recompute mode) const;
  std::int64_t surely_in_flight(const InFlight& now, int layers) const;
  std::vector<InFlight> moments(const Lane& lane, StageId k, const EqualRun& run, std::int64_t micro_batches) const;

  const CostModel& cost_;
  Plan plan_;
  MemoryModel memory_;            // of one layer
  std::array<double, 4> kept_{};  // w, by Recompute; of Full nothing but the boundary of a chunk
  double boundary_ = 0, freed_ = 0, again_ = 0;
  std::vector<NeedSum> sums_;
  std::array<std::vector<std::vector<InFlight>>, 2> moments_;  // by stage
};

}  // namespace pipewright::planner
