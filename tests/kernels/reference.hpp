// The CPU backend's arithmetic in double, under the names and arguments of the GPU kernels: workspace is left unused.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/dropout_mask.hpp"
#include "kernels/functions.hpp"
#include "kernels/gpu_shapes.hpp"
#include "kernels/optimizers.hpp"
#include "runtime/backends/cpu_kernels.hpp"

namespace pipewright::tests::reference {

using I = std::int64_t;
using D = double;
namespace cpu = cpu_kernels;

struct Reference {};

inline cpu::Function to_cpu(GpuFunction function) {
  return static_cast<cpu::Function>(function);
}
inline cpu::ConvShape to_cpu(const GpuConvShape& s) {
  return {s.channels_in,   s.height_in,    s.width_in, s.channels_out,   s.height_out,    s.width_out,
          s.kernel_height, s.kernel_width, s.stride,   s.padding_height, s.padding_width, s.groups};
}
inline cpu::PoolShape to_cpu(const GpuPoolShape& s) {
  return {s.channels, s.height_in, s.width_in, s.height_out, s.width_out, s.kernel, s.stride, s.padding};
}
inline cpu::AttentionShape to_cpu(const GpuAttentionShape& s) {
  return {s.heads, s.key_heads, s.key_size,     s.value_size, s.queries,
          s.keys,  s.causal,    s.query_stride, s.key_stride, s.value_stride};
}

// Kernels with the CPU's own arguments.
#define PIPEWRIGHT_SAME(name)                          \
  template <class... A>                                \
  void name(const Reference&, const A&... arguments) { \
    cpu::name<D>(arguments...);                        \
  }
PIPEWRIGHT_SAME(layer_norm)
PIPEWRIGHT_SAME(layer_norm_input_gradient)
PIPEWRIGHT_SAME(rms_norm)
PIPEWRIGHT_SAME(rms_norm_input_gradient)
PIPEWRIGHT_SAME(softmax)
PIPEWRIGHT_SAME(softmax_input_gradient)
PIPEWRIGHT_SAME(add)
PIPEWRIGHT_SAME(multiply)
PIPEWRIGHT_SAME(transpose)
PIPEWRIGHT_SAME(copy_rows)
PIPEWRIGHT_SAME(embedding)
PIPEWRIGHT_SAME(global_average_pool)
PIPEWRIGHT_SAME(global_average_pool_input_gradient)
PIPEWRIGHT_SAME(linear)
PIPEWRIGHT_SAME(linear_input_gradient)
#undef PIPEWRIGHT_SAME

// The definitions of values.hpp, written again: splitmix64 of a number [Steele14], 23 bits of it, the middle of each
// step; two of them make a normal number [BoxMuller58].
inline double unit(std::uint64_t seed, std::uint64_t number) {
  std::uint64_t z = seed + (number + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
  z = (z ^ z >> 27) * 0x94d049bb133111ebU;
  z ^= z >> 31;
  return (static_cast<double>(z >> 41) + 0.5) / 8388608;
}
inline void normal(const Reference&, I n, std::uint64_t seed, D deviation, D* y) {
  constexpr D kTurn = 6.283185307179586;
  for (I i = 0; i < n; ++i) {
    const auto at = 2 * static_cast<std::uint64_t>(i);
    y[i] = deviation * std::sqrt(-2 * std::log(unit(seed, at))) * std::cos(kTurn * unit(seed, at + 1));
  }
}

// Kernels whose function or shape has a type of its own.
#define PIPEWRIGHT_CONVERTED(name, First)                                  \
  template <class... A>                                                    \
  void name(const Reference&, const First& first, const A&... arguments) { \
    cpu::name<D>(to_cpu(first), arguments...);                             \
  }
PIPEWRIGHT_CONVERTED(activation, GpuFunction)
PIPEWRIGHT_CONVERTED(activation_input_gradient, GpuFunction)
PIPEWRIGHT_CONVERTED(gated, GpuFunction)
PIPEWRIGHT_CONVERTED(gated_input_gradient, GpuFunction)
PIPEWRIGHT_CONVERTED(max_pool, GpuPoolShape)
PIPEWRIGHT_CONVERTED(max_pool_input_gradient, GpuPoolShape)
PIPEWRIGHT_CONVERTED(average_pool, GpuPoolShape)
PIPEWRIGHT_CONVERTED(average_pool_input_gradient, GpuPoolShape)
PIPEWRIGHT_CONVERTED(attention, GpuAttentionShape)
PIPEWRIGHT_CONVERTED(attention_gradient, GpuAttentionShape)
#undef PIPEWRIGHT_CONVERTED

inline void layer_norm_weight_gradient(Reference, I rows, I features, const D* x, const D* statistics, const D* dy,
                                       D* d_weight, D* d_bias, D*) {
  cpu::layer_norm_weight_gradient(rows, features, x, statistics, dy, d_weight, d_bias);
}
inline void rms_norm_weight_gradient(Reference, I rows, I features, const D* x, const D* statistics, const D* dy,
                                     D* d_weight, D*) {
  cpu::rms_norm_weight_gradient(rows, features, x, statistics, dy, d_weight);
}
inline void cross_entropy(Reference, I samples, I rows, I classes, const D* x, const I* labels, D scale, D* losses,
                          D* gradient, D*) {
  cpu::cross_entropy(samples, rows, classes, x, labels, scale, losses, gradient);
}
inline void dropout(Reference, const DropoutMask& mask, I n, const D* x, D* y) {
  cpu::dropout<D>(mask.seed, mask.place, mask.below(), mask.factor(), n, x, y);
}
inline void embedding_weight_gradient(Reference, I rows, I features, const I* index, const D* dy, D* d_table, I*) {
  cpu::embedding_weight_gradient(rows, features, index, dy, d_table);
}
inline void linear_weight_gradient(Reference, I rows, I in, I out, const D* x, const D* dy, D* dw, D* db, D*) {
  cpu::linear_weight_gradient(rows, in, out, x, dy, dw, db);
}

// The CPU's convolution unfolds its input.
class Unfolded {
 public:
  Unfolded(const GpuConvShape& s) : values_(static_cast<std::size_t>(cpu::conv2d_unfolded(to_cpu(s)))) {}
  D* data() { return values_.data(); }

 private:
  std::vector<D> values_;
};
inline void conv2d(Reference, const GpuConvShape& s, I samples, const D* x, const D* w, const D* bias, D* y) {
  cpu::conv2d(to_cpu(s), samples, x, w, bias, y, Unfolded(s).data());
}
inline void conv2d_input_gradient(Reference, const GpuConvShape& s, I samples, const D* dy, const D* w, D* dx) {
  cpu::conv2d_input_gradient(to_cpu(s), samples, dy, w, dx, Unfolded(s).data());
}
inline void conv2d_weight_gradient(Reference, const GpuConvShape& s, I samples, const D* x, const D* dy, D* dw, D* db) {
  cpu::conv2d_weight_gradient(to_cpu(s), samples, x, dy, dw, db, Unfolded(s).data());
}

inline void flash_attention(Reference, const GpuAttentionShape& s, I samples, const D* q, const D* k, const D* v, D* y,
                            D* log_sum) {
  std::vector<D> block(static_cast<std::size_t>(cpu::kFlashQueries * s.keys));
  cpu::flash_attention(to_cpu(s), samples, q, k, v, y, log_sum, block.data());
}
inline void flash_attention_gradient(Reference, const GpuAttentionShape& s, I samples, const D* q, const D* k,
                                     const D* v, const D* y, const D* log_sum, const D* dy, D* dq, D* dk, D* dv, D*) {
  std::vector<D> block(static_cast<std::size_t>(2 * cpu::kFlashQueries * s.keys));
  cpu::flash_attention_gradient(to_cpu(s), samples, q, k, v, y, log_sum, dy, dq, dk, dv, block.data());
}

inline void update(Reference, const UpdateRule<D>& rule, const UpdatedTensor<D>* tensors, I count) {
  for (const UpdatedTensor<D>* t = tensors; t != tensors + count; ++t)
    switch (rule.kind) {
      case GpuOptimizer::Sgd: cpu::sgd(t->n, rule.rate, t->w, t->g, t->out); break;
      case GpuOptimizer::Momentum: cpu::momentum(t->n, rule.rate, rule.mu, t->w, t->g, t->out, t->first); break;
      case GpuOptimizer::RmsProp:
        cpu::rmsprop(t->n, rule.rate, rule.beta2, rule.epsilon, t->w, t->g, t->out, t->first);
        break;
      case GpuOptimizer::Adam:
        cpu::adam(t->n, rule.rate, rule.beta1, rule.beta2, rule.epsilon, rule.correction1, rule.correction2, t->w, t->g,
                  t->out, t->first, t->second);
        break;
    }
  for (const UpdatedTensor<D>* t = tensors; t != tensors + count; ++t)
    std::copy_n(t->out, t->n, t->stored);
}

// What the CPU backend has no function for: plain loops.
inline void fill(Reference, I n, D value, D* y) {
  for (I i = 0; i < n; ++i)
    y[i] = value;
}
inline void copy_values(Reference, I n, const D* x, D* y) {
  for (I i = 0; i < n; ++i)
    y[i] = x[i];
}
inline void convert(Reference, I n, const D* x, D* y) {
  copy_values(Reference{}, n, x, y);
}
inline void sum_of_terms(Reference, I n, const D* const* terms, int count, D* y) {
  for (I i = 0; i < n; ++i) {
    D sum = 0;
    for (int t = 0; t < count; ++t)
      sum += terms[t][i];
    y[i] = sum;
  }
}
inline void scale(Reference, I n, D factor, D* y) {
  for (I i = 0; i < n; ++i)
    y[i] *= factor;
}
inline void add_bias(Reference, I rows, I features, const D* x, const D* bias, const D* residual, D* y) {
  for (I r = 0; r < rows; ++r)
    for (I j = 0; j < features; ++j)
      y[r * features + j] = x[r * features + j] + bias[j] + (residual == nullptr ? 0 : residual[r * features + j]);
}
inline void bias_gradient(Reference, I rows, I features, const D* dy, D* db, D*) {
  for (I r = 0; r < rows; ++r)
    for (I j = 0; j < features; ++j)
      db[j] += dy[r * features + j];
}
}  // namespace pipewright::tests::reference
