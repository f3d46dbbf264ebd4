// The GPU's arithmetic: the functions of runtime/backends/cpu_kernels.hpp, with a queue in front. All pointers are the
// device's. Formulas, layouts and constants are the CPU's; gradients of inputs are overwritten, gradients of parameters
// are added to; what takes workspace says how much.
//
// T: how tensors are stored, float, Bf16 or Fp16. Arithmetic, sums, statistics and gradients of parameters are fp32.
//
// Each is a launch or a few, in the order of the stream. Every sum runs in an order that the shapes fix: no atomics, no
// split sums, the same bits for any number of blocks. They are not the bits of the CPU, whose order is another one.
// The products of linear layers are the exception where the queue names the library (gpu_queue.hpp).
//
// The code of the kernels lies in the headers that the .cu files include, and runs on a CPU as well (kernels/grid.hpp).
//
// Tests: tests/kernels/emulated_test.cpp (any machine), tests/kernels/gpu_test.cpp (a GPU)
#pragma once

#include <cstdint>
#include <span>

#include "kernels/columns.hpp"
#include "kernels/dropout_mask.hpp"
#include "kernels/functions.hpp"
#include "kernels/gpu_queue.hpp"
#include "kernels/gpu_shapes.hpp"
#include "kernels/optimizers.hpp"

namespace pipewright::gpu_kernels {

using I = std::int64_t;
using grid_kernels::columns_workspace;

// ---- rows ----------------------------------------------------------------------------------------------------------

template <class T>
void layer_norm(const Queue& queue, I rows, I features, const T* x, const T* weight, const T* bias, T* y,
                float* statistics);
template <class T>
void layer_norm_input_gradient(const Queue& queue, I rows, I features, const T* x, const float* statistics,
                               const T* weight, const T* dy, T* dx);
// workspace: columns_workspace(rows, features) values; d_bias may be null.
template <class T>
void layer_norm_weight_gradient(const Queue& queue, I rows, I features, const T* x, const float* statistics,
                                const T* dy, float* d_weight, float* d_bias, float* workspace);
template <class T>
void rms_norm(const Queue& queue, I rows, I features, const T* x, const T* weight, T* y, float* statistics);
template <class T>
void rms_norm_input_gradient(const Queue& queue, I rows, I features, const T* x, const float* statistics,
                             const T* weight, const T* dy, T* dx);
template <class T>
void rms_norm_weight_gradient(const Queue& queue, I rows, I features, const T* x, const float* statistics, const T* dy,
                              float* d_weight, float* workspace);
template <class T>
void softmax(const Queue& queue, I rows, I features, const T* x, T* y);
template <class T>
void softmax_input_gradient(const Queue& queue, I rows, I features, const T* y, const T* dy, T* dx);
// row_losses: samples * rows values of workspace. labels: on the device, each within the classes.
template <class T>
void cross_entropy(const Queue& queue, I samples, I rows, I classes, const T* x, const I* labels, float scale,
                   float* losses, T* gradient, float* row_losses);
template <class T>
void global_average_pool(const Queue& queue, I planes, I plane, const T* x, T* y);
// db[j] += the sum of dy[r][j] over the rows; workspace: columns_workspace(rows, features).
template <class T>
void bias_gradient(const Queue& queue, I rows, I features, const T* dy, float* db, float* workspace);
// total: one value; workspace: ceil(n / 4096) values.
template <class T>
void sum(const Queue& queue, I n, const T* x, float* total, float* workspace);

// ---- values --------------------------------------------------------------------------------------------------------

template <class T>
void fill(const Queue& queue, I n, float value, T* y);
// From float to T, or back.
template <class S, class T>
void convert(const Queue& queue, I n, const S* x, T* y);
// y[i] depends on seed and i alone: in (-bound, bound), or normal with that deviation.
template <class T>
void uniform(const Queue& queue, I n, std::uint64_t seed, float bound, T* y);
template <class T>
void normal(const Queue& queue, I n, std::uint64_t seed, float deviation, T* y);
// A copy by SMs, beside the copy engines that gpu_copy may use.
template <class T>
void copy_values(const Queue& queue, I n, const T* x, T* y);
// y = a + factor b.
template <class T>
void triad(const Queue& queue, I n, const T* a, const T* b, float factor, T* y);
// y = terms[0] + terms[1] + ..., in this order; y may be one of them. At most 64; `terms` is the host's.
template <class T>
void sum_of_terms(const Queue& queue, I n, const T* const* terms, int count, T* y);
// y *= factor.
template <class T>
void scale(const Queue& queue, I n, float factor, T* y);
template <class T>
void add(const Queue& queue, I n, const T* a, const T* b, T* y);
template <class T>
void multiply(const Queue& queue, I n, const T* a, const T* b, T* y);
// y = x + bias, + residual unless that is null; y may be x or residual.
template <class T>
void add_bias(const Queue& queue, I rows, I features, const T* x, const T* bias, const T* residual, T* y);
template <class T>
void activation(const Queue& queue, GpuFunction function, I n, const T* x, T* y);
template <class T>
void activation_input_gradient(const Queue& queue, GpuFunction function, I n, const T* kept, const T* dy, T* dx);
template <class T>
void gated(const Queue& queue, GpuFunction function, I rows, I features, const T* x, T* y);
template <class T>
void gated_input_gradient(const Queue& queue, GpuFunction function, I rows, I features, const T* x, const T* dy, T* dx);
template <class T>
void transpose(const Queue& queue, I matrices, I rows, I columns, const T* x, T* y);
// Dropout and its gradient, of dy: the mask is the same again. y may be x.
template <class T>
void dropout(const Queue& queue, const DropoutMask& mask, I n, const T* x, T* y);
// {samples, tokens, heads, size} -> {samples, heads, tokens, size}; tokens and heads exchanged: its inverse.
template <class T>
void transpose_heads(const Queue& queue, I samples, I tokens, I heads, I size, const T* x, T* y);
template <class T>
void copy_rows(const Queue& queue, I rows, I columns, const T* x, I x_stride, T* y, I y_stride);

// ---- tables --------------------------------------------------------------------------------------------------------

// index: on the device, each within the table.
template <class T>
void embedding(const Queue& queue, I rows, I features, const I* index, const T* table, T* y);
// order: `rows` numbers of workspace.
template <class T>
void embedding_weight_gradient(const Queue& queue, I rows, I features, const I* index, const T* dy, float* d_table,
                               I* order);
template <class T>
void learned_table(const Queue& queue, I samples, I values, const T* x, const T* table, T* y);
// workspace: columns_workspace(samples, values).
template <class T>
void learned_table_weight_gradient(const Queue& queue, I samples, I values, const T* dy, float* d_table,
                                   float* workspace);

// ---- windows -------------------------------------------------------------------------------------------------------

template <class T>
void max_pool(const Queue& queue, const GpuPoolShape& shape, I samples, const T* x, T* y, std::int32_t* position);
template <class T>
void max_pool_input_gradient(const Queue& queue, const GpuPoolShape& shape, I samples, const std::int32_t* position,
                             const T* dy, T* dx);
template <class T>
void average_pool(const Queue& queue, const GpuPoolShape& shape, I samples, const T* x, T* y);
template <class T>
void average_pool_input_gradient(const Queue& queue, const GpuPoolShape& shape, I samples, const T* dy, T* dx);
template <class T>
void global_average_pool_input_gradient(const Queue& queue, I planes, I plane, const T* dy, T* dx);

// ---- optimizers ----------------------------------------------------------------------------------------------------

// All tensors of the list in one launch per 64 of them.
template <class T>
void update(const Queue& queue, const UpdateRule<float>& rule, const UpdatedTensor<float, T>* tensors, I count);

// ---- products: one sum per value in the order of k; tensor cores where T has 16 bits --------------------------------

template <class T>
void linear(const Queue& queue, I rows, I in, I out, const T* x, const T* w, const T* bias, T* y);
template <class T>
void linear_input_gradient(const Queue& queue, I rows, I in, I out, const T* dy, const T* w, T* dx);
// db may be null; workspace: columns_workspace(rows, out) where it is not.
template <class T>
void linear_weight_gradient(const Queue& queue, I rows, I in, I out, const T* x, const T* dy, float* dw, float* db,
                            float* workspace);
template <class T>
void attention(const Queue& queue, const GpuAttentionShape& shape, I samples, const T* q, const T* k, const T* v, T* y,
               T* p);
// d_scores: as large as p. Null gradients are left out; those of k and v are asked for together.
template <class T>
void attention_gradient(const Queue& queue, const GpuAttentionShape& shape, I samples, const T* q, const T* k,
                        const T* v, const T* p, const T* dy, T* dq, T* dk, T* dv, T* d_scores);

// Scores that are never stored: flash.hpp. log_sum: samples * heads * queries values, and as many of workspace. Heads
// of at most grid_kernels::kFlashHead values.
template <class T>
void flash_attention(const Queue& queue, const GpuAttentionShape& shape, I samples, const T* q, const T* k, const T* v,
                     T* y, float* log_sum);
template <class T>
void flash_attention_gradient(const Queue& queue, const GpuAttentionShape& shape, I samples, const T* q, const T* k,
                              const T* v, const T* y, const float* log_sum, const T* dy, T* dq, T* dk, T* dv,
                              float* workspace);

// ---- convolutions: products over values looked up where they lie ---------------------------------------------------

template <class T>
void conv2d(const Queue& queue, const GpuConvShape& shape, I samples, const T* x, const T* w, const T* bias, T* y);
template <class T>
void conv2d_input_gradient(const Queue& queue, const GpuConvShape& shape, I samples, const T* dy, const T* w, T* dx);
template <class T>
void conv2d_weight_gradient(const Queue& queue, const GpuConvShape& shape, I samples, const T* x, const T* dy,
                            float* dw, float* db);

// ---- between virtual devices ---------------------------------------------------------------------------------------

// Replaces the n values of every buffer by the sum of all, around a ring (rings.hpp): member i's part in queue i. All
// on one device, or on devices that reach one another's memory; `device` is where the events lie.
void ring_all_reduce(int device, std::span<const Queue> queues, std::span<float* const> buffers, I n);

}  // namespace pipewright::gpu_kernels
