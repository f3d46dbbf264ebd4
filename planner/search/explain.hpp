// What would change the choice: bandwidths at which another plan becomes the best one, and plans that are not beaten in
// all of time, memory and cost.
#pragma once

#include <string>
#include <vector>

#include "planner/search/search.hpp"

namespace pipewright::planner {

// For the network and for the links inside a node, at 1/16 to 16 times today's bandwidth: where another of the plans
// found, or of those that a short search finds at either end, overtakes the best one. By fixed orders (shared links
// left out), each plan with its cuts unchanged; `at` is exact to 1 %. Adds to `flips` and `unmoved`, and to neither
// where options.time_limit (for each of the two) or options.stop ends it.
void explain_bandwidth(const Scenario& scenario, const SearchOptions& options, SearchAnswer& answer);

// Throws InputError for an axis that add_pareto does not know.
void check_pareto_axes(const std::vector<std::string>& axes);

// Plans that no other plan found beats in all of time per sample and the axes: "memory" (of the fullest device),
// "cost". Searches again with devices of 3/4, 1/2, 3/8 and 1/4 of the memory, and for cost without the last classes of
// devices, then with 1/2, 1/4, ... of the nodes, then of the devices of a node. Adds to `pareto`, fastest first. Throws
// InputError for an unknown axis.
void add_pareto(const Scenario& scenario, const std::vector<std::string>& axes, const SearchOptions& options,
                SearchAnswer& answer);

}  // namespace pipewright::planner
