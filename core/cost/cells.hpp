// Cells of ops that a worker runs at once: a forward beside the backward of another micro-batch (Op::with_next), so that
// one computes while the tokens of the other are under way (plan.pairs: fused).
//
// A cell begins when all of its ops have what they need, and they end together; only then is anything sent on. Exchanges of
// tokens cut an op into parts: a layer's forward into attention with router, dispatch, experts, combine and the rest, its
// backward likewise from behind (core/cost/cell_parts.hpp). Two streams run them in a fixed order, as DualPipe and Megatron-LM
// do, part by part in turns, the backward first; where one has more parts, those of the other are spread evenly among them:
//     computing    rest (B)  attention (F)  experts (B)  experts (F)  attention (B)  ...
//     exchanges    combine (B)  dispatch (F)  dispatch (B)  combine (F)  ...
// A part is computed when the one before it in the stream is done and, of its op, the exchange before it; an exchange runs
// when the part before it is done and the exchange before it in the stream. Gradients of weights belong to their part; with
// plan.delay_wgrad the exchange does not wait for them. While an exchange runs, computing goes on at 1 - s of its pace, s the
// share of a device's processors that exchanges take (plan.exchange_share). The cell ends with both streams.
//     one layer, F: 10 us, dispatch 20, 10, combine 20, nothing; B: nothing, combine 20, 10 and 10 for weights, dispatch 20, 10
//     and 10; s = 0: B's combine 0-20, F's attention 0-10 and dispatch 20-40, B's experts 20-40 and dispatch 40-60, F's experts
//     40-50 and combine 60-80, B's attention 60-80: 80 us. Where the experts' weights take 20, dispatch (B) runs 50-70, and all
//     90; with delay_wgrad 80 again.                                                 tests/sim/cells_test.cpp
// Never longer than the ops one after the other: one of both streams always runs.
// A stated length (plan.pair_time) is that of a forward with a backward; a recomputation in the cell comes on top.
// In a timeline the ops of a cell lie one behind the other, each with a share of its time like that of its own length.
//                                                                          [DeepSeekIII24] section 3.2.1 [Megatron26]
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
