// Stages with replicas for a plan that has everything else: the cut, the replicas and the places with the highest
// simulated throughput (steady state of PipeDream's schedule, or samples per step with a flush).
//
// 1. The suffix DP (partitioners/suffix_dp.hpp), on the bytes and times that the cost model and the memory model count,
//    gives for every number of stages the plan with the least bottleneck on two levels of links, within memory.
// 2. What the DP does not see is simulated: links that meet, hops that 1F1B leaves exposed, buffers. Plans are
// simulated
//    in increasing order of an estimate, the larger of the DP's bottleneck and of the round trips
//        sum over j >= k of (f_j + b_j + 2 c_j)  /  (micro-batches in flight on stage k)
//    and then changed step by step (a cut moved, a replica handed to a neighbour, other places) while that helps.
// 3. The bottleneck of the same DP under costs that no placement can avoid is a lower bound of every such plan's cycle.
// Plans that need more memory than the device has are left out, whatever the DP thinks of them.
//
// "Optimal" is never claimed: the ranking holds what was simulated, `gap` says how much better any other cut could be.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "planner/suffix_problem.hpp"

namespace pipewright::planner {

struct ReplicatedOptions {
  int workers = 0;                // to be used at most; 0: as many as the cluster has room for
  int most_stages = 0;            // 0: 32
  int least_stages = 1;           // 2: pipelines only, no data parallelism
  std::size_t top = 5;            // plans to be returned
  int most_simulations = 250;     // candidates simulated, those returned once more
  std::function<bool()> stopped;  // true: what is known so far is returned; none: never
};

struct ReplicatedPlan {
  Plan plan;                 // passes `validate`
  Time step;                 // as `price` prices it
  double samples_per_s = 0;  // likewise
  Time cycle;                // per micro-batch (and copy): step / micro-batches of a step
  Time estimate;             // of the cycle, before it was simulated
  int idle = 0;              // workers of the cluster without work
  std::string from;          // how it was found, in words: "suffix DP, 3 stages", "a cut moved", "data parallelism"
};

struct ReplicatedAnswer {
  std::vector<ReplicatedPlan> ranking;  // best first, no replicas (and classes) twice; empty: nothing fits
  Time lower_bound;  // of the step of any contiguous plan of one chunk per stage on these workers; kNever: none fits
  std::int64_t candidates = 0, simulated = 0;
  std::int64_t too_large = 0;                    // rejected for memory
  std::map<std::string, std::int64_t> rejected;  // for other reasons
  std::string nearest_miss;                      // of those that do not fit the one that misses least; ""
  Bytes missing;                                 // on its fullest device
  bool interrupted = false;

  double gap() const { return ranking.empty() ? 0 : ratio(ranking.front().step, lower_bound) - 1; }
};

// shell: a Plan without `layers`, `replicas`, `stages` and `device`: schedule "pipedream" or "1f1b", micro-batch and
// batch, tensor_parallel, gradient_sync, bucket, skips, `recompute` (first entry for every stage); data_parallel and
// virtual_stages 1. cost.scenario() gives model and cluster. Deterministic.
// Throws InputError when a tensor-parallel group does not fit the cluster, or a layer has no times.
ReplicatedAnswer replicated_plans(const Plan& shell, const CostModel& cost, const ReplicatedOptions& options = {});

}  // namespace pipewright::planner
