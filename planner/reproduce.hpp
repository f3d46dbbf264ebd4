// Published tables beside predictions: every row of an `expect:` table, evaluated on its own variant of the scenario.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/answers/expectation.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::planner {

// Where variants come from. Both throw InputError.
struct VariantSource {
  // The scenario with changes number `changes` of its file (-1: none), then `set` ("key=value").
  std::function<Scenario(int changes, const std::vector<std::string>& set)> scenario;
  // The whole number that stands under a key with these changes, if the file says it.
  std::function<std::optional<std::int64_t>(const std::string& key, int changes)> whole_number;
};

// The cells of a table, in its order; rows that are not published only serve the ratios of others. Each variant is
// priced once. A plan that does not fit is priced all the same, and its cell says so.
// Throws InputError where a variant is a bad scenario, with the row's place.
std::vector<Cell> reproduce(const ExpectationTable& table, const std::string& file, const VariantSource& variants);

}  // namespace pipewright::planner
