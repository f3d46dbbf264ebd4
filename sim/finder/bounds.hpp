// What no order of a pipeline with split backwards can beat.
//
// Between a stage's first F and its first B only Fs can run, and no more than the cap admits; between its last F and
// that micro-batch's B only what was in flight before, and Ws. What the way to the last stage and back takes longer than
// that, the stage is idle: at the beginning and at the end, which both count unless all Fs stand before the first B.
//
//     K = 8, M = 24, f, b, w, c = 18522, 18086, 9337, 601 and room for K micro-batches: the first stage waits
//     8 f + ... = 135016 and 72709, .1585 of the step, as the published order of ZB-1p does, which is therefore optimal
//                                             tests/sim/finder_test.cpp "published orders that the bound proves optimal"
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "sim/finder/problem.hpp"

namespace pipewright::sim {

struct OrderBound {
  std::int64_t value = 0;  // of the problem's measure, ns
  std::string why;         // "work of stage 3"
};

OrderBound order_bound(const OrderProblem& problem);

// A larger bound, up to `known`, that some order has: the least value that the windows of all passes do not refute
// (windows.hpp). `effort` counts steps, and is used up at most; `stop` ends it early, with what is proven by then.
void raise_bound(OrderBound& bound, const OrderProblem& problem, std::int64_t known, bool both_orders,
                 std::int64_t effort, const std::function<bool()>& stop);

// What one micro-batch holds on the stage in all chunks that it runs there; both ways the more of the two directions.
std::int64_t one_micro_batch(const OrderProblem& problem, StageId stage);
// The least cap with which an order is looked for: one micro-batch, both ways one in each direction.
std::int64_t least_cap(const OrderProblem& problem, StageId stage);

}  // namespace pipewright::sim
