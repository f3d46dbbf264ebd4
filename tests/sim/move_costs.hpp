// What the tests of moves between memories share.
#pragma once

#include <string>
#include <vector>

#include "core/cost/step_costs.hpp"

namespace pipewright::tests {

// Forwards of 1, backwards of 2, messages of 0, and every offload and reload of `move`.
inline StepCosts move_costs(const ScheduleShape& shape, std::int64_t move) {
  const auto chunks = at(shape.chunks());
  StepCosts costs = plain_costs(shape, std::vector<Time>(chunks, Time{1}), std::vector<Time>(chunks, Time{2}), Time{0});
  for (Collective& one : costs.moves)
    one = {{1}, Time{move}, {}};
  return costs;
}

inline std::string move_labels(const std::vector<Op>& ops) {
  std::string text;
  for (const Op& op : ops)
    text += (text.empty() ? "" : " ") + label(op);
  return text;
}

}  // namespace pipewright::tests
