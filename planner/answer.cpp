#include "planner/answer.hpp"

#include <utility>

#include "core/cost/cost_model.hpp"
#include "planner/anchor.hpp"
#include "planner/find_plan.hpp"
#include "planner/layer_order.hpp"
#include "planner/price.hpp"
#include "planner/what_if/explanation.hpp"
#include "planner/what_if/variants.hpp"

namespace pipewright::planner {

std::variant<Answer, Infeasible> answer(const Scenario& asked, const AnswerOptions& options) {
  const bool anchors = asked.training.framework.anchor && !asked.training.framework.correction;
  const InOrder ordered = in_graph_order(std::make_shared<const Scenario>(anchors ? anchored(asked) : asked));
  const CostModel cost(ordered.scenario);
  Answer answer = price(find_plan(cost.scenario(), cost), cost, options.engine);
  settle(answer, options.engine);
  if (Report& report = answer.report; !report.fits) {
    report.shortfall.remedies = remedies(answer);
    if (!answer.plan.cut.empty()) report.shortfall.details.push_back(answer.plan.cut);
    if (!options.ignore_memory) {
      add_warnings(answer, cost);
      report.shortfall.warnings = std::move(report.warnings);
      return report.shortfall;
    }
  }
  explain(answer, cost, ordered.how, options.engine);
  return answer;
}

}  // namespace pipewright::planner
