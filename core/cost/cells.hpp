// Cells of ops that a worker runs at once: a forward beside the backward of another micro-batch (Op::with_next), so that
// one computes while the tokens of the other are under way (plan.pairs: fused).
//
// A cell begins when all of its ops have what they need, and they end together; only then is anything sent on. With C_i
// what op i computes, X_i what it waits for tokens that travel to experts and back (alone it takes C_i + X_i), and s the
// share of a device's processors that such an exchange takes (plan.exchange_share):
//     T = max(sum X, sum C + s sum X)       beside an exchange computing goes on at 1 - s of its pace
//     C = 30 + 60 us, X = 25 + 25 us, s = 0.15: max(50, 97.5) = 97.5 us; one after the other 140 us
// A stated length (plan.pair_time) is that of a forward with a backward; a recomputation in the cell comes on top.
// In a timeline the ops of a cell lie one behind the other, each with a share of its time like that of its own length.
//                                            [DeepSeekIII24] section 3.2.1; tests/sim/cells_test.cpp
#pragma once

#include <span>
#include <vector>

#include "core/cost/step_costs.hpp"

namespace pipewright::core {

// The ops of the cell that begins with the first of these; one, where ops run one after the other.
std::span<const Op> cell_of(const StepCosts& costs, std::span<const Op> ops);

// How long it takes.
Time cell_time(const StepCosts& costs, std::span<const Op> cell);

// When each of its ops ends in a timeline, from the begin of the cell.
std::vector<Time> ends_in_cell(const StepCosts& costs, std::span<const Op> cell);

}  // namespace pipewright::core
