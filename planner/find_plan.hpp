// The scenario's plan with every number settled: batch split, partition, replicas, placement.
#pragma once

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/scenario.hpp"

namespace pipewright {

// Compute ops of all workers in one simulated run: more are refused. A run keeps about 100 bytes per op (the op, its
// times, its message), so this is about 1.6 GiB.
constexpr std::int64_t kMostOps = std::int64_t{1} << 24;
// Chunks of a model: ops and messages hold a chunk's number in 16 bits.
constexpr std::int64_t kMostChunks = 65535;

// Throws InputError with one line per error (file:line:column) for what the scenario must not ask: an unknown schedule
// or one that cannot be built for this shape, more stages than layers, a batch that does not divide, more workers than
// devices, a partition or a placement that does not cover them, more ops than `kMostOps`.
Plan find_plan(const Scenario& scenario, const CostModel& cost);

}  // namespace pipewright
