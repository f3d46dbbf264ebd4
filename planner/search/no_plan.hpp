// What a search says that has no plan: what it knows of the layouts, each under its true reason.
#pragma once

#include <string>
#include <vector>

#include "core/answers/ranking.hpp"
#include "core/plan/plan.hpp"

namespace pipewright {

// "2 x training.micro_batches: ...", a line per reason.
std::vector<std::string> reasons_in_words(const Ranking& answer);

// It ended before it had one: `answer.ended`.
NoPlanYet no_plan_yet(const Ranking& answer);

// It came to its end. "no plan fits" is said where that is known of every layout; where some were not simulated, or no
// cut was found of them that fits, "no plan was found that fits". `fit`: the probability asked for, 0: none.
Infeasible without_remedies(const Ranking& answer, double fit);

}  // namespace pipewright
