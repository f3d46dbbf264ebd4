// The search where stages may have replicas of their own: 15-1 and the like.
#pragma once

#include <variant>

#include "planner/search/search.hpp"

namespace pipewright {

// Whether the scenario asks for it: `plan.replicas: auto`, or a partition that makes whole plans.
bool asks_for_replicas(const Scenario& scenario);

// Schedules pipedream and 1f1b, one chunk per stage, one copy. For every schedule, tensor-parallel degree, micro-batch
// size and (with plan.recompute: auto) recomputation of all stages alike that may be chosen, the stages, cuts, replicas
// and places of planner/replicated.hpp, or of PipeDream's optimizer where plan.partition names it: then without a
// bound. plan.stages is open, too. As `search`.
std::variant<SearchAnswer, Infeasible> search_replicas(const Scenario& scenario, const SearchOptions& options);

}  // namespace pipewright
