// The scenario's plan with every number settled: batch split, partition, replicas, placement.
#pragma once

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::planner {

// Compute ops of all workers that are simulated in one run (core/cost/fold.hpp): more are refused. So many all-reduces
// at most: buckets grow until there are no more (bucket_size.hpp). A run keeps about 100 bytes per op (the op, its
// times, its message), so this is about 1.6 GiB.
constexpr std::int64_t kMostOps = std::int64_t{1} << 24;
// Chunks of a model: ops and messages hold a chunk's number in 16 bits.
constexpr std::int64_t kMostChunks = 65535;

// Whether fields are left to the search (planner/search/): those that say auto, but for what a partitioner of whole
// plans chooses itself.
bool needs_search(const Scenario& scenario);

// Throws InputError where a partition that makes whole plans (suffix_dp, ...) is asked for beside fields that
// contradict it: fixed stages, replicas or placement, several copies or chunks, a schedule without replicas. Each line
// names both.
void check_whole_plan(const Scenario& scenario);

// The plan of everything but stages, replicas, layers and devices, from a scenario that leaves these open; for
// partitioners of whole plans. Recomputation: one entry, for every stage.
Plan shell_of_whole_plans(const Scenario& scenario, const CostModel& cost);

// A partition that makes whole plans is followed: of its plans the one with the least simulated step. Where none fits
// the devices, the balanced cut into as many stages as there are workers, so that the shortfall can be told;
// `Plan::cut` says so. Throws InputError with one line per error (file:line:column) for what the scenario must not ask:
// an unknown schedule or one that cannot be built for this shape, more stages than layers, a batch that does not
// divide, more workers than devices, a partition or a placement that does not cover them, more ops than `kMostOps`.
// How the chunks of the requested schedule lie: as its rule says, or the file that gives it.
ChunkOrder chunk_order_of(const PlanRequest& request);

Plan find_plan(const Scenario& scenario, const CostModel& cost);

}  // namespace pipewright::planner
