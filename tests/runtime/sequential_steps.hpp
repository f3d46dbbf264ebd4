// Losses and weights of a step that a pipelined run must equal, next to the gradients of runtime/sequential.hpp.
#pragma once

#include <vector>

#include "runtime/executor.hpp"
#include "tests/runtime/run_case.hpp"

namespace pipewright::tests {

// Mean loss over the samples of the first step, summed as workers sum theirs: each in the order of its own forwards,
// then worker by worker. Flush schedules only.
double sequential_loss(const RunPlan& run, const BackendMaker& backend, const Data& data, const RunSettings& settings);

// Weights after some steps under any schedule, by virtual stage: one worker does the ops of all lists one after the
// other, with every version of the weights kept, and reads those that the lists say. The gradients of a round are summed
// in the order of the workers, and those of an update in the order of its rounds.
std::vector<std::vector<float>> sequential_weights(const RunPlan& run, const BackendMaker& backend, const Data& data,
                                                   const RunSettings& settings, int steps = 1);

// Loss and gradients of a run's first step have the bits of one worker, on each device of a group that holds the experts
// between them, and every worker holds what was counted. What the workers left behind.
std::vector<WorkerResult> check_bits_of_one_worker(const runtime_test::RunCase& run, runtime_test::Wait wait);

}  // namespace pipewright::tests
