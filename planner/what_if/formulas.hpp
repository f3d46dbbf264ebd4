// Textbook formulas beside the simulated values, each with what its assumptions miss here.
#pragma once

#include <vector>

#include "core/answers/report.hpp"

namespace pipewright::planner {

// Bubble share, step time of GPipe, micro-batches in flight on the first and the last stage: those that are known for
// the schedule. Shares are in percent, times in seconds.
//
// And, of what lies in the host's memory, how much of its peak a device reaches whose copies run beside nothing:
//     efficiency = ait bw / (ait bw + peak)                                           [ZeROInfinity21] section 4
// ait: FLOPs per byte that is copied, of the model in bf16 that repeats its forwards, 8 FLOPs per token and parameter, and
// tokens of a device:
//     weights and gradients    8 B per parameter and micro-batch    ait = tokens of a micro-batch
//     optimizer's states       32 B per parameter and step          ait = tokens of a step / 4
// bw: of the n devices together that divide them, as each moves its own part. 2 x 1024 tokens a micro-batch, 8 devices of
// 50 GB/s, 70 TFLOP/s: 2048 * 400e9 / (2048 * 400e9 + 70e12) = 92.1 %    tests/planner/host_weights_test.cpp
std::vector<FormulaReport> formulas(const Answer& answer);

}  // namespace pipewright::planner
