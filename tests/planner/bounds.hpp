// How fast a pipeline can possibly be, and how fast GPipe is: formulas over stage times, no simulation.
#pragma once

#include <cstdint>

#include "planner/partitioners/exact.hpp"

namespace pipewright::tests {

// GPipe's step of M micro-batches, exactly, for any stages: the first micro-batch passes all stages in both directions,
// each further one waits for the slowest forward and the slowest backward, which may sit on different stages.
//     T = sum (f_k + b_k) + 2 sum c_k + (M - 1) (max f + max b)
// f = 2 1, b = 2 5, c = 1, M = 3: 10 + 2 + 2 (2 + 5) = 26 ns.    Derived; equal to the engine: tests/planner/bounds_test.cpp
// Messages that follow one another on a wire must not be slower than the stages (c <= max f and max b), which `hop` as
// pure latency never is.
Time gpipe_step(const PipelineTimes& times, std::int64_t micro_batches);

// No fixed order with a flush ends earlier: stage k begins after the stages before it, does all its work, and the last
// gradient still has to pass back through them.
//     LB1 = max_k [ sum_{j<k} (f_j + b_j + 2 c_j) + M (f_k + b_k) ]
// f = b = 1 1, c = 0, M = 4: max(8, 2 + 8) = 10, which is (M + K - 1)(f + b).
Time work_bound(const PipelineTimes& times, std::int64_t micro_batches);

// The same for 1F1B with K - k micro-batches in flight on stage k: a micro-batch returns to stage k before the one
// K - k behind it may go, so micro-batches 0, K - k, 2 (K - k), ... make their round trips over the stages k..K-1 one
// after the other.
//     LB2 = max_k [ sum_{j<k} (f_j + b_j + 2 c_j) + ceil(M / (K - k)) sum_{j>=k} (f_j + b_j + 2 c_j) ],   c_{K-1} = 0
// f = b = 1 1, c = 3, M = 4: k = 0: 2 * (2 + 6 + 2) = 20; k = 1: 8 + 4 * 2 = 16.
Time window_bound(const PipelineTimes& times, std::int64_t micro_batches);

}  // namespace pipewright::tests
