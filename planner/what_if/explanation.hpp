// What an answer says in addition to its figures: textbook formulas, references, what changes would bring, how wrong it may be,
// warnings, hints, and where everything is from.
#pragma once

#include <string>
#include <vector>

#include "core/answers/report.hpp"
#include "core/cost/cost_model.hpp"
#include "sim/simulate.hpp"

namespace pipewright::planner {

// Fills what `summarize` leaves open in the report of a priced answer. order: how its layers were ordered, or "".
void explain(Answer& answer, const CostModel& cost, const std::string& order, Engine engine);

// Fills Report::warnings. `explain` does, too: this is for an answer that does not fit, and is explained no further.
void add_warnings(Answer& answer, const CostModel& cost);

// Those that any plan of the scenario would get: of one that has none.
std::vector<std::string> scenario_warnings(const Scenario& scenario);

// What is said of the whole training that a scenario asks for: without a length nothing; checkpoints too close together.
std::vector<std::string> campaign_warnings(const Scenario& scenario, const Report& report);

// One line per option of a plan that changes nothing about it, ready for Report::warnings: the user expected something.
std::vector<std::string> options_without_effect(const Scenario& scenario, const Plan& plan);

}  // namespace pipewright::planner
