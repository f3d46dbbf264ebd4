// What a pipelined run must equal bit by bit: the same samples on one worker, without schedule, arena or transport.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/executor.hpp"

namespace pipewright {

// The same samples on one worker without any schedule: for every micro-batch in the order in which the run's virtual
// stages ran their backwards, all forwards, then all backwards, stage after stage. Gradients of the first step, by
// virtual stage. Copies and replicas are summed in the order of the workers. Flush schedules only.
std::vector<std::vector<float>> sequential_gradients(const RunPlan& run, const BackendMaker& backend, const Data& data,
                                                     const RunSettings& settings);

// Mean loss over the samples of the first step, summed as workers sum theirs: each in the order of its own forwards,
// then worker by worker. Flush schedules only.
double sequential_loss(const RunPlan& run, const BackendMaker& backend, const Data& data, const RunSettings& settings);

// Weights after one step under any schedule, by virtual stage: one worker does the ops of all lists one after the
// other, with every version of the weights kept, and reads those that the lists say. Asynchronous schedules with
// replicas: the gradients of a round are summed in the order of the workers.
std::vector<std::vector<float>> sequential_weights(const RunPlan& run, const BackendMaker& backend, const Data& data,
                                                   const RunSettings& settings);

}  // namespace pipewright
