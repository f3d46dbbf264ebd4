// The best plan of a scenario as if it were its own: for sweeps in which the planner chooses anew at every point.
#pragma once

#include <variant>

#include "core/answers/report.hpp"
#include "planner/search/search.hpp"

namespace pipewright {

// The best plan for what the scenario leaves open, priced; where it leaves nothing open, for every field that `plan:
// auto` opens. Safe to call from several threads. Throws InputError as `search` does.
std::variant<Answer, Infeasible> replanned(const Scenario& scenario, const SearchOptions& options = {.top = 1});

// The scenario with the fields open that `plan: auto` opens.
Scenario with_open_plan(const Scenario& scenario);

}  // namespace pipewright
