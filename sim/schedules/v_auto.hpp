// Two chunks per stage, there and back, in the order of the building block that suits times and a memory cap best.
//                                                                    [ControllableMemory24]
#pragma once

#include "sim/schedules/zb_auto.hpp"

namespace pipewright {

// A list for each of K stages; `times` has 2 K chunks, stage k those numbered k and 2 K - 1 - k. The cap counts whole
// chunks, each held from its F to its W. Empty where no block fits: from M = K on they want
// 2 floor((K + 4) / 3) chunks, less for K = M = 2.
std::vector<std::vector<Op>> v_auto_order(int micro_batches, const ZeroBubbleTimes& times);

}  // namespace pipewright
