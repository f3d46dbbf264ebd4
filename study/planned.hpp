// The question of `plan`, and its answer with all that is asked of it.
#pragma once

#include <string>
#include <vector>

#include "core/question/scenario.hpp"
#include "planner/launch/narrowed.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {
struct FrameworkWords;
}

namespace pipewright::study {

// As every plan is searched: anchored, to fit with kFitByDefault where nothing is said, and of a framework's plans
// alone where one is named. Throws InputError.
Narrowed planning_question(Scenario scenario, const FrameworkWords* framework);

struct PlanningAsked {
  const FrameworkWords* framework = nullptr;  // as of the question
  bool explain = false;                       // bandwidths at which the best plan changes
  std::vector<std::string> pareto = {};       // axes, as check_pareto_axes has them
};
// `options` but for what follows from the question. What is asked beyond the plans stays open where the search ended
// early. Throws InputError as `search` does.
SearchResult planned(const Narrowed& question, SearchOptions& options, const PlanningAsked& asked);

// "searched for Megatron-LM only: schedule: 1f1b", a line per field that the framework has narrowed.
std::vector<std::string> restrictions(const Narrowed& question, const FrameworkWords* framework);

// "not as stated, for torchtitan: training.optimizer: muon is not there; adam", and what `launch` will say of every plan.
std::vector<std::string> framework_warnings(const Narrowed& question, const FrameworkWords* framework);

}  // namespace pipewright::study
