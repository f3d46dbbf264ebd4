// Whether what a calibration times is right: one pass on the values that are timed, beside the CPU backend's in double
// precision, which the tests of the kernels compare with, too.
//
//     error = |difference| / |right|, of the values that a pass writes; of several tensors the largest
//
// Limits are those of the kernels' tests [tests/kernels/kernel_runs.hpp], per storing on a result's way:
//
//     fp32, and whatever is stored in fp32     2e-5
//     tf32, products                           1e-3
//     bf16, fp16                               2e-5 + 2 u storings, u = 2^-9 and 2^-12; of sums of k > 1000
//                                              products 2e-5 k / 1000, as tensor cores cut and do not round [Fasi21]
//     copies                                   0
//
// Storings: 2 (what the pass reads of its forward and what it writes; cuBLASLt's product and the sum with the bias);
// attention 3 and, its gradient, 5. bf16 GELU: 2e-5 + 4 x 2^-9 = 0.0078.
// The kernels' code, run by a CPU, stays below a third of every limit at the sizes that are compared.
//
// Tests: tests/runtime/grid_backend_test.cpp "numeric check", tests/calibrate/device_loop_test.cpp "wrong result"
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "calibrate/device_list.hpp"

namespace pipewright::calibrate {

struct NumericCheck {
  double error = 0, limit = 0;
  bool right() const { return error <= limit; }  // false of NaN
};

// Of products, of 16-bit and fp32 results.
double numeric_limit(const DeviceMeasurement& measurement, bool stored_in_fp32);

// FLOPs above which no pass is checked: the reference would take the host seconds.
constexpr double kMostCheckedWork = 1e9, kMostCheckedValues = 8 << 20;

// `values` fp32 numbers, or numbers stored as tensors of that precision are, in double.
void widened(const std::byte* from, std::int64_t values, Precision precision, double* to);

// |a - b| / |b| of as many values; NaN where one of `a` is.
double relative_off(std::span<const double> a, std::span<const double> b);

// "its result is wrong (forward of 64 x 512 x 512: off by 0.31, allowed 2e-05)"
std::string wrong_result(const DeviceMeasurement& measurement, const NumericCheck& check);

}  // namespace pipewright::calibrate
