// A run as other programs can repeat it: the weights it begins with, the samples of its steps, and its losses. One file
// in the format of safetensors: eight bytes that say how long the header is, the header in JSON, the values.
//                                                                                                      [safetensors22]
//     loss                     F64 [steps]            mean over the samples of a step, warm-up included
//     input, labels            F32 or I64 [samples, ..]   of all steps, in order: copy after copy within a step
//     layers.3.linear_1.bias   F32, in PyTorch's shapes   step 1 of layer 3, as the launch file for PyTorch names it
//
// Tests: tests/cli/launch_files_test.py, tests/torch/launched_test.py
#pragma once

#include <string>
#include <vector>

#include "core/model/graph.hpp"
#include "runtime/data.hpp"
#include "runtime/run_plan.hpp"
#include "runtime/run_settings.hpp"
#include "runtime/worker_result.hpp"

namespace pipewright::runtime {

// Of a run from its first step on.
std::string exported(const RunPlan& run, const Model& model, const Data& data, const RunSettings& settings,
                     const std::vector<WorkerResult>& workers);

}  // namespace pipewright::runtime
