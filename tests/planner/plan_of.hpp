// What tests ask of a scenario: its plan, what is wrong with it, and the plan priced.
#pragma once

#include <string>

#include "core/check.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"

namespace pipewright::tests {

inline Plan plan_of(const Scenario& scenario) {
  return find_plan(scenario, CostModel(scenario));
}

inline std::string error_of(const Scenario& scenario) {
  try {
    plan_of(scenario);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

inline Answer priced(const Scenario& scenario) {
  const CostModel cost(scenario);
  return price(find_plan(scenario, cost), cost, Engine::Auto);
}

// Of its plan.
inline Time step_of(const Scenario& scenario) {
  const CostModel cost(scenario);
  return price(find_plan(scenario, cost), cost, Engine::StaticOrder).report.makespan;
}

}  // namespace pipewright::tests
