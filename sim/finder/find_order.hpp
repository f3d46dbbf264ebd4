// Finds an order of the passes for the times and memory of a problem, and says how far from the best it can be.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/finder/bounds.hpp"
#include "sim/finder/problem.hpp"

namespace pipewright::sim {

struct OrderBudget {
  std::int64_t evaluations = 200'000;  // orders that are made or priced at most
  std::uint64_t seed = 1;
  std::function<bool()> stop = {};  // asked now and then; ends the search early
};

struct NamedOrder {
  std::string name;  // "zb_h1"
  PricedOrder order;
};

struct FoundOrder {
  PricedOrder order;              // begin is empty: the cap admits none
  std::vector<NamedOrder> known;  // schedules with a name that keep to the cap, as the table has them
  OrderBound bound;
  std::int64_t evaluations = 0;
  bool stopped = false;  // by `stop`
};

// The best of: schedules with a name; orders made in time by rules whose numbers are improved by chance
// (list_order.hpp); single passes moved, every second one on the critical path, worse orders accepted ever more seldom
// (simulated annealing) [NowickiSmutnicki96]. The same for the same problem, evaluations and seed, unless `stop` ends it.
FoundOrder find_order(const OrderProblem& problem, const OrderBudget& search);

}  // namespace pipewright::sim
