// Orders that are made for a plan: for the times of its passes, the hops between its stages, and how much may be in
// flight. find_plan makes one and keeps it (Plan::given). Where there is none, as in a table of schedules, passes take
// equally long, hops nothing, and as much may be in flight as with 1F1B.
#pragma once

#include <memory>
#include <vector>

#include "core/plan/given_schedule.hpp"
#include "sim/finder/problem.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::sim {

// What the heuristics of zero bubble's authors make an order for. Times are in ns, memory is in any one unit.
//                                                                    [ZeroBubble23] section 3.1, appendix B
struct ZeroBubbleTimes {
  // One entry per chunk: f, b and w of a micro-batch.
  std::vector<std::int64_t> forward, input, weights;
  // One entry per chunk: what a micro-batch holds from F to B, and what of that it keeps from B to W.
  std::vector<std::int64_t> held, kept_after_input;
  std::vector<std::int64_t> cap;  // one entry per stage
  std::int64_t hop = 0;           // from a stage's end of an op until a neighbour can begin the next one
};

// The problem with as many micro-batches in flight on a stage, whatever its own caps; two chunks of it hold one, of which
// the share `kept` stays from B to W. nullptr: no order was found.
std::shared_ptr<const GivenSchedule> made_order(const ScheduleRule& rule, OrderProblem problem, std::int64_t in_flight,
                                                double kept = 1);

// One hop for all: from the heuristics' times, and for them the longest. They want what W needs to be no more than what
// is held: what is more is left out.
OrderProblem one_hop_problem(const ScheduleShape& shape, const ZeroBubbleTimes& times);
ZeroBubbleTimes zero_bubble_times(const OrderProblem& problem);

// For `compute` of a rule.
Schedule made_schedule(const ScheduleRule& rule, const ScheduleShape& shape);

}  // namespace pipewright::sim
