#include "kernels/device_grid.cuh"
#include "kernels/gpu_kernels.hpp"
#include "kernels/values.hpp"

namespace pipewright::gpu_kernels {

template <class T>
void fill(const Queue& queue, I n, float value, T* y) {
  grid_kernels::fill(grid_kernels::DeviceGrid{queue}, n, value, y);
}

template <class T>
void uniform(const Queue& queue, I n, std::uint64_t seed, float bound, T* y) {
  grid_kernels::uniform(grid_kernels::DeviceGrid{queue}, n, seed, bound, y);
}

template <class T>
void normal(const Queue& queue, I n, std::uint64_t seed, float deviation, T* y) {
  grid_kernels::normal(grid_kernels::DeviceGrid{queue}, n, seed, deviation, y);
}

template <class T>
void copy_values(const Queue& queue, I n, const T* x, T* y) {
  grid_kernels::copy_values(grid_kernels::DeviceGrid{queue}, n, x, y);
}

template <class T>
void triad(const Queue& queue, I n, const T* a, const T* b, float factor, T* y) {
  grid_kernels::triad(grid_kernels::DeviceGrid{queue}, n, a, b, factor, y);
}

template <class T>
void sum_of_terms(const Queue& queue, I n, const T* const* terms, int count, T* y) {
  grid_kernels::sum_of_terms(grid_kernels::DeviceGrid{queue}, n, terms, count, y);
}

template <class T>
void scale(const Queue& queue, I n, float factor, T* y) {
  grid_kernels::scale(grid_kernels::DeviceGrid{queue}, n, factor, y);
}

template <class T>
void add(const Queue& queue, I n, const T* a, const T* b, T* y) {
  grid_kernels::add(grid_kernels::DeviceGrid{queue}, n, a, b, y);
}

template <class T>
void multiply(const Queue& queue, I n, const T* a, const T* b, T* y) {
  grid_kernels::multiply(grid_kernels::DeviceGrid{queue}, n, a, b, y);
}

template <class T>
void add_bias(const Queue& queue, I rows, I features, const T* x, const T* bias, const T* residual, T* y) {
  grid_kernels::add_bias(grid_kernels::DeviceGrid{queue}, rows, features, x, bias, residual, y);
}

template <class T>
void activation(const Queue& queue, GpuFunction function, I n, const T* x, T* y) {
  grid_kernels::activation(grid_kernels::DeviceGrid{queue}, function, n, x, y);
}

template <class T>
void activation_input_gradient(const Queue& queue, GpuFunction function, I n, const T* kept, const T* dy, T* dx) {
  grid_kernels::activation_input_gradient(grid_kernels::DeviceGrid{queue}, function, n, kept, dy, dx);
}

template <class T>
void gated(const Queue& queue, GpuFunction function, I rows, I features, const T* x, T* y) {
  grid_kernels::gated(grid_kernels::DeviceGrid{queue}, function, rows, features, x, y);
}

template <class T>
void gated_input_gradient(const Queue& queue, GpuFunction function, I rows, I features, const T* x, const T* dy,
                          T* dx) {
  grid_kernels::gated_input_gradient(grid_kernels::DeviceGrid{queue}, function, rows, features, x, dy, dx);
}

template <class T>
void transpose(const Queue& queue, I matrices, I rows, I columns, const T* x, T* y) {
  grid_kernels::transpose(grid_kernels::DeviceGrid{queue}, matrices, rows, columns, x, y);
}

template <class T>
void transpose_heads(const Queue& queue, I samples, I tokens, I heads, I size, const T* x, T* y) {
  grid_kernels::transpose_heads(grid_kernels::DeviceGrid{queue}, samples, tokens, heads, size, x, y);
}

template <class T>
void copy_rows(const Queue& queue, I rows, I columns, const T* x, I x_stride, T* y, I y_stride) {
  grid_kernels::copy_rows(grid_kernels::DeviceGrid{queue}, rows, columns, x, x_stride, y, y_stride);
}

template <class S, class T>
void convert(const Queue& queue, I n, const S* x, T* y) {
  grid_kernels::convert(grid_kernels::DeviceGrid{queue}, n, x, y);
}

PIPEWRIGHT_STORED_AS_ANY(fill);
PIPEWRIGHT_STORED_AS_ANY(uniform);
PIPEWRIGHT_STORED_AS_ANY(normal);
PIPEWRIGHT_STORED_AS_ANY(copy_values);
PIPEWRIGHT_STORED_AS_ANY(triad);
PIPEWRIGHT_STORED_AS_ANY(sum_of_terms);
PIPEWRIGHT_STORED_AS_ANY(scale);
PIPEWRIGHT_STORED_AS_ANY(add);
PIPEWRIGHT_STORED_AS_ANY(multiply);
PIPEWRIGHT_STORED_AS_ANY(add_bias);
PIPEWRIGHT_STORED_AS_ANY(activation);
PIPEWRIGHT_STORED_AS_ANY(activation_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(gated);
PIPEWRIGHT_STORED_AS_ANY(gated_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(transpose);
PIPEWRIGHT_STORED_AS_ANY(transpose_heads);
PIPEWRIGHT_STORED_AS_ANY(copy_rows);
template void convert(const Queue&, I, const float*, float*);
template void convert(const Queue&, I, const float*, Bf16*);
template void convert(const Queue&, I, const float*, Fp16*);
template void convert(const Queue&, I, const Bf16*, float*);
template void convert(const Queue&, I, const Fp16*, float*);

}  // namespace pipewright::gpu_kernels
