// The three products of a linear layer as one writes them down with Eigen, compiled with the flags of the CPU backend's
// arithmetic: what bench_runtime compares with.
#pragma once

#include <cstdint>

namespace pipewright::tests {

void plain_eigen_linear(std::int64_t rows, std::int64_t in, std::int64_t out, const float* x, const float* w,
                        const float* dy, float* y, float* dx, float* dw);

}  // namespace pipewright::tests
