// Random prices for a shape: every duration, message and all-reduce drawn on its own, zeros included, so that engines
// meet ties, empty ops and messages that overtake in time but not in their channel.
#pragma once

#include <random>

#include "core/cost/step_costs.hpp"

namespace pipewright::tests {

enum class Wires {
  Chain,  // one edge between neighbours
  Skips,  // some neighbours have none, and some skip stages
};

// Durations up to `longest`. Every ordered pair of workers is one channel; routes and links are left empty.
StepCosts random_costs(const ScheduleShape& shape, std::mt19937& random, Wires wires = Wires::Chain,
                       std::int64_t longest = 9);

// Slices of unequal times: tables of their own for each of the shape's.
void add_slices(StepCosts& costs, std::mt19937& random, std::int64_t longest = 9);

}  // namespace pipewright::tests
