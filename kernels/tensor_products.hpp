// Products of linear layers by tensor cores, of values in 16 bits (T: Bf16, Fp16) with sums in fp32. Sums run along k
// from the first value to the last, for any number of blocks. Behind gpu_kernels::linear; tensor_tiles.hpp on a GPU.
//
// Tests: tests/kernels/tensor_tiles_test.cpp (any machine), tests/kernels/gpu_test.cpp (a GPU)
#pragma once

#include <cstdint>

#include "kernels/gpu_queue.hpp"

namespace pipewright::gpu_kernels::tensor_products {

using I = std::int64_t;

template <class T>
void linear(const Queue& queue, I rows, I in, I out, const T* x, const T* w, const T* bias, T* y);
template <class T>
void linear_input_gradient(const Queue& queue, I rows, I in, I out, const T* dy, const T* w, T* dx);
template <class T>
void linear_weight_gradient(const Queue& queue, I rows, I in, I out, const T* x, const T* dy, float* dw);  // added

}  // namespace pipewright::gpu_kernels::tensor_products
