// "How many devices do I need?": a search for the best plan on each of several numbers of nodes.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/answers/sizing.hpp"
#include "core/question/scenario.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {

constexpr int kMostNodesByItself = 64;  // of `auto`

struct SizingQuestion {
  std::vector<int> nodes;          // ascending
  bool ends_itself = false;        // more nodes that bring nothing end the list
  bool looks_between = false;      // numbers between two of the list are asked, too, where the answer lies there
  std::optional<double> deadline;  // days
  std::function<double()> clock;   // seconds, for the limit of all searches; empty: the machine's
};

// 1, 2, 4, .. up to the scenario's own number, at least kMostNodesByItself.
SizingQuestion nodes_by_themselves(const Scenario& scenario);
// `first`, the powers of two behind it, `last`.
SizingQuestion nodes_between(int first, int last);

// A plan on some nodes is a plan on more of them, so whether one fits, and how fast the best one is, grows with the
// nodes: the fewest are found by halving between two numbers of the list; with a deadline and `ends_itself` the last
// number is doubled before, until a plan is in time, three doublings bring nothing, or there are kMostDevices devices.
// That holds for what a search finds up to its
// gap; where a time limit cut a search, `notes` says so. `options.time_limit` holds for all searches together: each gets its
// share of what is left.
// Throws InputError for a cluster of several device classes, for several nodes without a network, for a deadline
// without a length of the training, and as `search` does.
Sizing size_cluster(const Scenario& scenario, const SizingQuestion& question, const SearchOptions& options);

}  // namespace pipewright::planner
