// What each operation computes, as plain loops over single values in double: a second opinion on the kernels.
#pragma once

#include <vector>

#include "tests/runtime/step_runner.hpp"

namespace pipewright::tests::runtime_test {

// The output of the runner's step from its inputs and parameters, all samples.
std::vector<double> naive_forward(const StepRunner<double>& run);

}  // namespace pipewright::tests::runtime_test
