// ZB-V by the authors' heuristic: two chunks per stage, there and back, for given times and a memory cap.
#pragma once

#include "sim/schedules/zb_auto.hpp"

namespace pipewright {

// A list for each of K stages. `times` has 2 K chunks: stage k has those numbered k and 2 K - 1 - k. The memory of 1F1B
// is a cap of 2 K chunks; from there on there is an order if all chunks hold the same. Empty where none is found.
// Wants 0 <= kept_after_input <= held.
std::vector<std::vector<Op>> zero_bubble_v_order(int micro_batches, const ZeroBubbleTimes& times);

}  // namespace pipewright
