// What a search says that has no plan, or left more than the gap that was asked for: what it knows of the layouts, each
// under its true reason.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "core/answers/ranking.hpp"
#include "core/plan/plan.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {

// "2 x training.micro_batches: ...", a line per reason.
std::vector<std::string> reasons_in_words(const Ranking& answer);

// It ended before it had one: `answer.ended`.
NoPlanYet no_plan_yet(const Ranking& answer);

// It came to its end. "no plan fits" is said where that is known of every layout; where some were not simulated, or no
// cut was found of them that fits, "no plan was found that fits". `fit`: the probability asked for, 0: none.
Infeasible without_remedies(const Ranking& answer, double fit);

// What keeps the bound of a search that ended by itself low, each of the objective.
struct OpenBounds {
  const Candidate* lowest = nullptr;  // the candidate of the least bound
  double lowest_bound = 0, lowest_value = 0;
  double given_up = 0;                                             // of layouts of which no cut was found that fits
  double not_simulated = std::numeric_limits<double>::infinity();  // of layouts that are too large for the simulator
  bool cuts_open = true;
};

// "" where the gap is reached, or `answer.ended` says what ended the search. `answer` has plans and a bound.
std::string gap_left(const Ranking& answer, const SearchOptions& options, const OpenBounds& open);

}  // namespace pipewright::planner
