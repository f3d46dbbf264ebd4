// A schedule whose gradients are summed in several ways, with times to add up by hand.
#pragma once

#include <doctest/doctest.h>

#include "sim/schedules/table.hpp"

namespace pipewright::tests {

struct Summed {
  Schedule schedule;
  StepCosts costs;
};

// Forwards of 3, backwards of 6, reductions of 2, updates of 1, the all-reduces of each table and of the norm 5.
inline Summed summed(const char* name, ScheduleShape shape) {
  const ScheduleRule* rule = find_schedule(name);
  shape.chunk_order = rule->chunk_order;
  REQUIRE(rule->refusal(shape) == "");
  Schedule schedule = rule->generate(shape);
  REQUIRE(validate(schedule) == "");
  const auto count = at(shape.chunks());
  StepCosts costs =
      plain_costs(schedule.shape, std::vector<Time>(count, Time{3}), std::vector<Time>(count, Time{6}), {});
  for (auto& reductions : costs.collectives)
    for (Collective& reduction : reductions)
      reduction = Collective{{1}, Time{2}, {}};
  for (std::size_t v = 0; v < count; ++v)
    costs.duration[v * kKinds + static_cast<std::size_t>(Kind::Update)] = Time{1};
  costs.tied.assign(shape.tied.size(), Collective{{1}, Time{5}, {}});
  if (shape.norm) costs.norm = {{4}, Time{5}, {}};
  return {std::move(schedule), std::move(costs)};
}

}  // namespace pipewright::tests
