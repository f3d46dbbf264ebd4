// The search where stages may have replicas of their own: 15-1 and the like.
#pragma once

#include "planner/search/search.hpp"

namespace pipewright::planner {

// Whether the scenario asks for it: `plan.replicas: auto`, or a partition that makes whole plans.
bool asks_for_replicas(const Scenario& scenario);

// Throws InputError where the cluster has several classes and this search knows one: it is for one class unless it asks
// for replicas, and then unless plan.partition names an optimizer of one class.
void check_classes_of_search(const Scenario& scenario);

// Schedules pipedream and 1f1b, one chunk per stage, one copy. For every schedule, tensor-parallel degree, micro-batch
// size and (with plan.recompute: auto) recomputation of all stages alike that may be chosen, the stages, cuts, replicas
// and places of planner/replicated.hpp, or of PipeDream's optimizer where plan.partition names it: then without a
// bound. plan.stages is open, too. On several classes of devices each stage lies on those of one. As `search`.
SearchResult search_replicas(const Scenario& scenario, const SearchOptions& options);

}  // namespace pipewright::planner
