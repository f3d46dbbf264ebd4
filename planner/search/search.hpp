// The best plan for what a scenario leaves open, with a bound on what any other could reach.
//
//   for every group of layouts, least bound first:            planner/search/space, Evaluator::bound
//       bound no better than what is wanted already: done with all groups
//       every layout: first cut, lightest recomputation that fits, simulated           Evaluator::evaluate
//   the best, and whatever may still beat them: exact search for cuts                  Evaluator::refine
//   the best are priced as `simulate` would (shared links, buffers), in order, until none left can be better
//
// Optimal over contiguous cuts of the model's layers in their order, for the values that the open fields may take,
// under the simulator's cost model: nothing more.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/answers/ranking.hpp"
#include "core/plan/plan.hpp"
#include "planner/search/candidate.hpp"

namespace pipewright::planner {

struct Progress {
  // Of what so many are done: "layouts" are opened, then "cuts" of layouts searched and "plans" priced; where nothing
  // fits "changes" are tried, and explain_bandwidth looks for "flips". In every kind of work the count begins anew.
  std::string_view what = "layouts";
  std::int64_t done = 0, all = 0;  // all: as far as is known yet
  double best = 0;                 // samples per second; 0: none yet
};

struct SearchOptions {
  Objective objective = Objective::Throughput;
  int top = 5;  // plans wanted, at least 1
  // Good enough: the best plan is at most so far from the bound. Up to kSettling whatever may be better than the best
  // plan is looked at all the same, so that it does not hang on `top`; more ends the search as soon as it is reached.
  double gap = 0.01;
  double time_limit = 10;               // seconds; what is found then is the answer, with the gap that is left
  std::int64_t most_simulations = 400;  // per layout, for its cuts
  // With gap 0: while time is left, layouts that may still be better are searched again, each time eight times as long.
  bool keep_going = false;
  Within within = {};                  // beside what the scenario says
  std::vector<std::string> kept = {};  // fields, "plan.recompute", that no remedy may open
  bool remedies = true;                // where nothing fits: look for what would help
  bool proof = false;  // where no cut fits of those that were tried: ask for the least memory, as for remedies
  std::function<void(const Progress&)> progress = {};  // called whenever `stop` is asked
  std::function<bool()> stop = {};  // asked between two layouts or cuts; true ends the search as the time limit does
};

struct SearchAnswer : Ranking {
  std::vector<Candidate> candidates;  // all that were evaluated, best first: by fixed orders
};

// Infeasible: nothing fits, with what needs least, and the cheapest changes with which something would.
using SearchResult = std::variant<SearchAnswer, Infeasible, NoPlanYet>;

// Throws InputError on a scenario that has nothing open, or whose fields contradict one another.
SearchResult search(const Scenario& scenario, const SearchOptions& options = {});

// The same of a scenario whose switches are settled (planner/search/switches.hpp); nothing else need be open.
SearchResult search_settled(const Scenario& scenario, const SearchOptions& options);

constexpr double kSettling = 0.01;

}  // namespace pipewright::planner
