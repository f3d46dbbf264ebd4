#include "planner/search/replan.hpp"

#include <utility>

#include "core/cost/memory_model.hpp"
#include "core/plan/open_micro_batches.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"

namespace pipewright {

Scenario with_open_plan(const Scenario& scenario) {
  Scenario result = scenario;
  for (const std::string_view key : kOpenedByPlanAuto)
    result.plan.open[std::string(key)] = {};
  open_micro_batches(result.training, true);
  return result;
}

std::variant<Answer, Infeasible> replanned(const Scenario& scenario, const SearchOptions& options) {
  auto found = search(fitting_by_default(anything_open(scenario) ? scenario : with_open_plan(scenario)), options);
  if (auto* none = std::get_if<Infeasible>(&found)) return std::move(*none);
  if (const auto* none = std::get_if<NoPlanYet>(&found)) return Infeasible{in_words(*none), none->details, {}};
  const Found& best = std::get<SearchAnswer>(found).plans.front();
  const CostModel cost(best.scenario);
  return price(find_plan(*best.scenario, cost), cost, Engine::Auto);
}

}  // namespace pipewright
