// `plan --nodes`, `plan --deadline`: the best plan on each of several numbers of nodes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "core/question/scenario.hpp"
#include "planner/search/search.hpp"

namespace pipewright::cli {

// Whether the command asks for that.
bool asks_for_nodes(const Arguments& arguments);

// Throws InputError for options that do not go with it, for numbers of nodes and a deadline that are none, and for
// outputs that cannot be written; before anything is searched.
void check_nodes(const Arguments& arguments);

// Prints and writes the answer, with `notes` next to its own. `searched` is called between search and printing. Returns
// the exit status: 1 where no plan fits, or none meets the deadline.
int plan_nodes(const Arguments& arguments, const Scenario& scenario, const SearchOptions& options,
               const std::vector<std::string>& notes, const std::function<void()>& searched);

}  // namespace pipewright::cli
