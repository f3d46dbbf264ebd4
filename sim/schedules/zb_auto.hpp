// Orders of split backwards that are made for given times and a memory cap, by the authors' heuristics.
//                                                                    [ZeroBubble23] section 3.1, appendix B
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/schedule.hpp"

namespace pipewright {

// What an order is made for. Times are in ns, memory is in any one unit.
struct ZeroBubbleTimes {
  // One entry per chunk: f, b and w of a micro-batch.
  std::vector<std::int64_t> forward, input, weights;
  // One entry per chunk: what a micro-batch holds from F to B, and what of that it keeps from B to W.
  std::vector<std::int64_t> held, kept_after_input;
  std::vector<std::int64_t> cap;  // one entry per stage
  std::int64_t hop = 0;           // from a stage's end of an op until a neighbour can begin the next one
};

// A list for each stage of one chunk: ZB-1p with a cap of K micro-batches, ZB-2p with 2 K. Empty where the cap admits
// none. Wants 0 <= kept_after_input <= held.
std::vector<std::vector<Op>> zero_bubble_order(int micro_batches, const ZeroBubbleTimes& times);

}  // namespace pipewright
