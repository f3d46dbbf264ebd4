#include "study/planned.hpp"

#include <utility>
#include <variant>

#include <fmt/format.h>

#include "core/cost/memory_model.hpp"
#include "io/launch/launch.hpp"
#include "planner/anchor.hpp"
#include "planner/search/explain.hpp"
#include "planner/what_if/explanation.hpp"
#include "planner/what_if/speed_range.hpp"

namespace pipewright::study {

Narrowed planning_question(Scenario scenario, const FrameworkWords* framework) {
  scenario = fitting_by_default(anchored(std::move(scenario)));
  return framework == nullptr ? Narrowed{std::move(scenario), {}, {}, {}, {}}
                              : narrowed(scenario, framework->framework);
}

std::vector<std::string> restrictions(const Narrowed& question, const FrameworkWords* framework) {
  std::vector<std::string> lines;
  for (const std::string& line : question.restricted)
    lines.push_back(fmt::format("searched for {} only: {}", framework->name, line));
  return lines;
}

std::vector<std::string> framework_warnings(const Narrowed& question, const FrameworkWords* framework) {
  std::vector<std::string> lines;
  for (const std::string& what : question.replaced)
    lines.push_back(fmt::format("not as stated, for {}: {}", framework->name, what));
  if (framework != nullptr && framework->framework == Framework::Torchtitan)
    for (const std::string& lack : torchtitan_lacks(question.scenario.model))
      lines.push_back(fmt::format("launch --for {} will say: {}", framework->word, lack));
  return lines;
}

SearchResult planned(const Narrowed& question, SearchOptions& options, const PlanningAsked& asked) {
  options.within = question.within, options.kept = question.keys;
  options.keep_going = options.gap == 0;
  SearchResult result = search(question.scenario, options);
  if (auto* const none = std::get_if<Infeasible>(&result)) {
    const std::vector<std::string> lines = restrictions(question, asked.framework);
    none->details.insert(none->details.end(), lines.begin(), lines.end());
    none->warnings = framework_warnings(question, asked.framework);
    for (std::string& warning : scenario_warnings(question.scenario))
      none->warnings.push_back(std::move(warning));
  }
  auto* const found = std::get_if<SearchAnswer>(&result);
  if (found == nullptr) return result;
  if (found->ended == Ended::No) {
    if (asked.explain) explain_bandwidth(question.scenario, options, *found);
    if (!asked.pareto.empty()) add_pareto(question.scenario, asked.pareto, options, *found);
  }
  found->plans.front().report.range = speed_range(found->plans.front());
  found->framework_warnings = framework_warnings(question, asked.framework);
  if (asked.framework != nullptr) found->framework = asked.framework->name, found->restricted = question.restricted;
  return result;
}

}  // namespace pipewright::study
