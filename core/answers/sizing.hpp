// The best plan on clusters of several sizes: how many devices a training needs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/answers/ranking.hpp"

namespace pipewright::core {

// The same question on so many nodes.
struct SizedNodes {
  int nodes = 1, devices = 1;
  std::optional<Found> best;
  bool known = true;  // without `best`: nothing fits; false: the search ended before it knew
  std::string why;    // without `best`
  double bound = 0;   // of the objective; 0: not known
  Ended ended{};
  std::string gap_left;        // as Ranking::gap_left
  std::optional<double> days;  // of the whole training, with failures where these can be told; nothing: never
  bool failures = false;       // `days` are with failures
  // With all efficiencies at the upper and at the lower ends of their bands; of the rows that are marked.
  std::optional<double> days_low, days_high;
};

struct Sizing {
  std::vector<SizedNodes> rows;    // fewest nodes first, never empty
  std::optional<double> deadline;  // days
  // Numbers of nodes; nothing: none of the rows.
  std::optional<int> smallest;     // on which a plan fits
  std::optional<int> cheapest;     // least device time for a sample, or money
  std::optional<int> fastest;      // most samples per second; of equal ones the fewest nodes
  std::optional<int> in_time;      // the fewest that meet the deadline
  std::vector<std::string> notes;  // what was not asked, and what is not proven
  Ended ended{};                   // Interrupted: rows are missing
  std::string next;                // the command that writes the plan of the answer; "": there is none
};

}  // namespace pipewright::core
