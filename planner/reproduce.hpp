// Published tables beside predictions: every row of an `expect:` table, evaluated on its own variant of the scenario.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/plan/expectation.hpp"
#include "core/plan/scenario.hpp"

namespace pipewright {

// The scenario with changes number `changes` of its file (-1: none), then `set` ("key=value"). Throws InputError.
using ScenarioAt = std::function<Scenario(int changes, const std::vector<std::string>& set)>;

// The cells of a table, in its order; rows that are not published only serve the ratios of others. Each variant is
// priced once. A plan that does not fit is priced all the same, and its cell says so.
// Throws InputError where a variant is no good scenario, with the row's place.
std::vector<Cell> reproduce(const ExpectationTable& table, const std::string& file, const ScenarioAt& scenario_at);

}  // namespace pipewright
