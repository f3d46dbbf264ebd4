// Synthetic runs: layers that state figures and no operators, run without arithmetic. Every op takes its priced time
// and holds, allocates and sends its stated bytes, so that schedule, transport and memory are those of a real run.
//
// Times are those of `step_costs`, bytes those of the memory model (core/cost/memory_model.hpp):
//     weights, gradients, optimizer states    as there, in the training's precision
//     stash       from F to the end of its backward: kept tensors and the model's own input. What a stage receives lies
//                 in its message's slot until then and is not counted twice
//     recompute   what R rebuilds, until the end of the backward; the largest core or rebuilt layer while one runs
//     workspace   scratch memory while an op runs; gradients of inputs until they are sent; outputs until then, where
//                 the stash does not hold as much
//     buffers     the slots, of 64 B at least: a tensor of no bytes is still a message
//
// All-reduces travel as in a real run, over gradients that are all zero. An update takes its priced time and changes
// nothing. There is no loss, and there are no samples.
//
// Tests: tests/runtime/synthetic_test.cpp
#pragma once

#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"
#include "runtime/chunk_code.hpp"

namespace pipewright::runtime {

// Every virtual stage of the plan. Throws InputError for what workers cannot do even without arithmetic: tensor
// parallelism, ZeRO.
std::vector<ChunkCode> compile_synthetic(const Plan& plan, const CostModel& cost, Bytes alignment);

}  // namespace pipewright::runtime
