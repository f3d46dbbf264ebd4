// What a device copies around the collectives of PyTorch's FSDP2 (training.sharding: per_parameter), beside what it computes.
//                                                                                               [PyTorchFSDP26]
// Each parameter has a shard of its own, in fp32. Of a unit with P parameters on n devices, w bytes each (2 in bf16) and g
// bytes of a gradient (4 where it is reduced in fp32):
//     before a gather     (4 + w) P / n cast, if w < 4, and 2 w P / n into the buffer that is sent
//     behind it           2 w P        out of the buffer, into the parameters
//     before a reduction  (w + g) P    gradients, into the buffer that is sent
// A block of Llama 3 8B, P = 218 112 000, n = 8, bf16: 272.6 MB, 872.4 MB and 1308.7 MB.  tests/planner/gather_copies_test.cpp
#pragma once

#include "core/cost/kernel_queue.hpp"
#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::core {

// Bytes that a device's memory moves, of a unit, as each op of a kind has them.
struct GatherCopies {
  double forward = 0;    // of F, where each gathers
  double backward = 0;   // of a backward's gather
  double gradients = 0;  // of what completes gradients, where each micro-batch reduces
  double step = 0;       // once a step: gathers and reductions that are not repeated
};
GatherCopies gather_copies(const Plan& plan, VirtualStageId v, const Scenario& scenario);

// Whether every forward of that plan reads weights that FSDP2 gathers for it.
bool gathers_per_parameter(const Plan& plan, const Scenario& scenario);

// FSDP2 issues the gather of the next unit once its host has issued the forward before it, not ahead of it. A host that takes
// longer than its device is late with it: gather and forward then run one after the other, beside the host.
//     forward = max(forward, gather + device)                where host > device                   [PyTorchFSDP26]
// Kernels that take the host 10 ms and the device 6, gather 5 ms: 11 ms; gather 3: the host's 10.
//                                                                        tests/planner/gather_copies_test.cpp "late"
Time behind_late_gather(Time forward, const KernelQueue& kernels, Time gather);

}  // namespace pipewright::core
