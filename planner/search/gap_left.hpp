// Why a search that ended by itself left more than the gap that was asked for.
#pragma once

#include <limits>
#include <string>

#include "planner/search/search.hpp"

namespace pipewright {

// What keeps the bound of a search low, each of the objective.
struct OpenBounds {
  const Candidate* lowest = nullptr;  // the candidate of the least bound
  double lowest_bound = 0, lowest_value = 0;
  double given_up = 0;                                             // of layouts of which no cut was found that fits
  double not_simulated = std::numeric_limits<double>::infinity();  // of layouts that are too large for the simulator
  bool cuts_open = true;
};

// "" where the gap is reached, or `answer.ended` says what ended the search. `answer` has plans and a bound.
std::string gap_left(const Ranking& answer, const SearchOptions& options, const OpenBounds& open);

}  // namespace pipewright
