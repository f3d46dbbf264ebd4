// Where no plan fits: what is missing, and the cheapest changes with which one does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/search/search.hpp"

namespace pipewright::planner {

// The plan of the scenario's space that needs least memory per device, whatever its devices have; `bound`: what every
// plan needs at least. Nothing: none was found.
std::optional<SearchAnswer> least_memory(const Scenario& scenario, const SearchOptions& options);

// "PP4 DP1, 4 micro-batches of 1, 1f1b needs 9.8 GiB on stage 0, 1.8 GiB more than the 8.0 GiB of a device"
std::string in_words(const NearestMiss& nearest);

// The stage whose devices need most.
StageId fullest_stage(const Found& found);

// Whether anything fits once a field is opened, in shorter numbers, or on more nodes of the same kind (the fewest): a
// short search each. Then the memory that is enough, from `least`. Lines can be pasted:
// "...: --set plan.recompute=auto".
std::vector<std::string> cheapest_changes(const Scenario& scenario, const SearchOptions& options,
                                          const std::optional<SearchAnswer>& least);

}  // namespace pipewright::planner
