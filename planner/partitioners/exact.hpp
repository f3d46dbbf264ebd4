// The contiguous partition with the least step under a given schedule, as the simulator counts it: proven, or with the
// gap that is left.
//
// What min_max or suffix_dp minimise, the bottleneck, is not the step: fill and drain, and hops that 1F1B exposes, come
// on top, and under GPipe the slowest forward and the slowest backward may sit on different stages. So every partition
// gets a lower bound of its step, partitions are simulated in increasing order of it, and when the next bound is not
// below the best step seen, that one is the optimum.
//
// Partitions are not listed but grown from the first stage (best-first branch and bound, [LandDoig60]). Bounds are
// those of tests/planner/bounds.hpp: 1f1b work_bound, window_bound; eager_1f1b work_bound; gpipe gpipe_step, which is
// exact. work_bound holds for any order whose backwards are whole (file): the first op of a stage is a forward, its
// last one a backward. A prefix of stages that leaves layers i..L-1 for q stages is bounded by its own terms and by a
// table, filled from the back, of the least that any rest can give. With t(i..j) = sum (f + b), c2_j = 2 c_j for the
// cut behind layer j, and C_q the least sum of c2 over the cuts of q stages,
//     R_q(i) = min over j of max( M t(i..j),                                            work of the stage
//                                 ceil(M / q) (t(i..L-1) + c2_j + C_{q-1}(j + 1)),     1f1b: its window
//                                 t(i..j) + c2_j + R_{q-1}(j + 1) )                     the stages behind it
// which is the least work_bound over all partitions, and under 1f1b a lower bound of the least larger one of the two.
// The first partition to be simulated is the one that attains R_K(0).
//     f = b = 1 1 1 1, K = 2, c = 0, M = 4: cuts behind layer 0, 1, 2 have work_bound 2 + 4 * 6, 4 + 4 * 4, 24.  R = 20
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/units.hpp"
#include "planner/partitioners/fitting.hpp"

namespace pipewright::planner {

// Times of a straight pipeline of K stages: forward, backward, and hop[k], the time of one message between stage k and
// k + 1 (K - 1 of them).
struct PipelineTimes {
  std::vector<Time> forward, backward, hop;
};

struct ExactProblem {
  std::string schedule;       // one with a StepBound; that of a file: with `step`
  int stages = 1;             // K, at most the number of layers
  int micro_batches = 1;      // M
  std::vector<Time> forward;  // per layer
  std::vector<Time> backward;
  std::vector<Time> hop;  // [i]: one message over the cut behind layer i, as latency; the last is not used; none: 0
  StageFits fits = {};    // which stages fit, as in fitting.hpp; none: all
  // What else a stage of these layers does for each micro-batch, such as recomputing them where they do not fit
  // otherwise; none: nothing. Without `step` it is part of the backward.
  std::function<Time(StageId, LayerRange)> extra = {};
  // What the first stage still has to do when the last gradient has come back to it, such as its all-reduce and its
  // update; none: nothing. Added to every bound; without `step` it is left out.
  std::function<Time(LayerRange)> tail = {};
  // The step of a partition, where it is not that of the times above in a straight pipeline (overheads, shared links,
  // all-reduces). Must not be below it, or the bounds would be none.
  std::function<Time(const std::vector<LayerRange>&)> step = {};
  std::function<bool()> stop = {};          // asked now and then; true ends the search as a limit does; none: never
  std::int64_t most_simulations = 100'000;  // at least 1
  std::int64_t most_prefixes = std::int64_t{1} << 20;  // about 100 bytes each
};

struct ExactAnswer {
  std::vector<LayerRange> layers;  // none: no partition fits, or stopped before the first was looked at
  Time step;
  Time lower_bound;  // of all partitions' steps
  std::int64_t simulations = 0, prefixes = 0;

  bool proven() const { return lower_bound == step; }
  double gap() const { return ratio(step, lower_bound) - 1; }  // at most so far from the optimum
};

// Deterministic; of equal steps the partition that was simulated first. Where a limit ends the search, `lower_bound` is
// the least bound of what was not looked at.  Equal to brute force: tests/planner/exact_test.cpp
ExactAnswer exact(const ExactProblem& problem);

// Times of the stages of a partition, and their step without a callback.
PipelineTimes stage_times(const ExactProblem& problem, const std::vector<LayerRange>& layers);
Time plain_step(const std::string& schedule, const PipelineTimes& times, int micro_batches);

}  // namespace pipewright::planner
