// A pass of a program's only step in double precision, by the CPU backend: what a calibration compares with.
//
// Tests: tests/runtime/grid_backend_test.cpp "numeric check"
#pragma once

#include <cstdint>
#include <vector>

#include "core/cluster/measured_device.hpp"
#include "core/model/program.hpp"
#include "kernels/dropout_mask.hpp"
#include "runtime/backend.hpp"

namespace pipewright::calibrate {

// What a step reads, of all samples. A tensor of token numbers has no values, others have no numbers.
struct StepValues {
  struct Input {
    std::vector<double> values;
    std::vector<std::int64_t> numbers;
  };
  std::vector<Input> inputs;
  std::vector<std::vector<double>> parameters;
  std::vector<double> output_gradient;
  std::vector<std::int64_t> labels;
};

// Forward: the output. Input gradient: one per input, none of token numbers. Weight gradient: one per parameter, of
// this pass alone.
std::vector<std::vector<double>> step_reference(const Program& program, std::int64_t samples, const StepValues& values,
                                                MeasuredPass pass);

// Weight, then the optimizer's states, after one step from these.
std::vector<std::vector<double>> update_reference(const OptimizerSettings& settings, const std::vector<double>& weight,
                                                  const std::vector<double>& gradient,
                                                  const std::vector<std::vector<double>>& states);

// Of a dropout, or of its gradient: the mask is the same.
std::vector<double> dropout_reference(const DropoutMask& mask, const std::vector<double>& x);

}  // namespace pipewright::calibrate
