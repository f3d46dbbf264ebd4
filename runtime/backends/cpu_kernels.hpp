// The CPU's arithmetic: plain functions on plain pointers, for float (real runs) and double (tests of gradients).
//
// These functions are compiled for the processor that `-Dcpu_isa` names, the rest of the program is not. So this header
// holds no type with inline code (no std container, nothing of Eigen): such code would be compiled twice under one
// name, and the linker keeps either (docs/decisions/0009-cpu-isa.md).
//
// Matrices are row-major. A sum runs in an order that the shapes fix: 16 running sums over the values j = l (mod 16),
// folded by halves, then the rest one by one; nothing depends on addresses. Gradients of inputs are overwritten,
// gradients of parameters are added to.
//
// Tests: tests/runtime/gradients_test.cpp, tests/runtime/kernels_test.cpp
#pragma once

#include <cstdint>

#include "core/rooms.hpp"

namespace pipewright::runtime::cpu_kernels {

// What the processor must be able to do, and what these functions were compiled for: "x86-64-v3".
const char* isa();
// nullptr, or what this processor lacks: "AVX2, FMA and BMI2 (x86-64-v3)".
const char* missing_features();
// Once, before the products, by one thread: fixes the cache sizes by which Eigen cuts its blocks. It would read them
// from the processor, and the order of sums would differ between two machines of one ISA.
void prepare();

// ---- products -------------------------------------------------------------------------------------------------------

// y {rows, out} = x {rows, in} w^T + bias; w {out, in}; bias may be null.
template <class S>
void linear(std::int64_t rows, std::int64_t in, std::int64_t out, const S* x, const S* w, const S* bias, S* y);
template <class S>
void linear_input_gradient(std::int64_t rows, std::int64_t in, std::int64_t out, const S* dy, const S* w, S* dx);
template <class S>
void linear_weight_gradient(std::int64_t rows, std::int64_t in, std::int64_t out, const S* x, const S* dy, S* dw,
                            S* db);

struct ConvShape {
  std::int64_t channels_in, height_in, width_in;
  std::int64_t channels_out, height_out, width_out;
  std::int64_t kernel_height, kernel_width, stride, padding_height, padding_width, groups;
};
// Values of the unfolded input of one group and sample; 0 where the input is that already (kernel 1 x 1, stride 1).
std::int64_t conv2d_unfolded(const ConvShape& shape);
// w {channels_out, channels_in / groups, kernel_height, kernel_width}; `unfolded`: conv2d_unfolded values.
template <class S>
void conv2d(const ConvShape& shape, std::int64_t samples, const S* x, const S* w, const S* bias, S* y, S* unfolded);
template <class S>
void conv2d_input_gradient(const ConvShape& shape, std::int64_t samples, const S* dy, const S* w, S* dx, S* unfolded);
template <class S>
void conv2d_weight_gradient(const ConvShape& shape, std::int64_t samples, const S* x, const S* dy, S* dw, S* db,
                            S* unfolded);

// softmax(q k^T / sqrt(key_size)) v of every sample and head                                      [Vaswani17] 3.2.1
// Query i of q sees key j when j <= i + keys - queries (causal), or always. Query head h reads key head
// h * key_heads / heads. Strides count values from one row to the next, and rows of samples follow one another.
struct AttentionShape {
  std::int64_t heads, key_heads, key_size, value_size, queries, keys;
  bool causal;
  std::int64_t query_stride, key_stride, value_stride;
};
// Materialised: p {samples, heads, queries, keys} keeps the scores after softmax, 0 where masked.
template <class S>
void attention(const AttentionShape& shape, std::int64_t samples, const S* q, const S* k, const S* v, S* y, S* p);
// d_scores: queries * keys values. Null gradients are left out; those of k and v are asked for together.
template <class S>
void attention_gradient(const AttentionShape& shape, std::int64_t samples, const S* q, const S* k, const S* v,
                        const S* p, const S* dy, S* dq, S* dk, S* dv, S* d_scores);
// Flash: log_sum {samples, heads, queries} keeps the log of each row's sum of exponentials, and the gradient computes
// the scores of a block of queries again                                                            [Dao22]
// Causal: keys that no query of the block sees are not touched.
constexpr std::int64_t kFlashQueries = 64;  // per block: 64 x 1024 scores are 256 KiB, what an L2 holds
// `block` of flash_attention: kFlashQueries * keys values; of its gradient, twice that.
template <class S>
void flash_attention(const AttentionShape& shape, std::int64_t samples, const S* q, const S* k, const S* v, S* y,
                     S* log_sum, S* block);
template <class S>
void flash_attention_gradient(const AttentionShape& shape, std::int64_t samples, const S* q, const S* k, const S* v,
                              const S* y, const S* log_sum, const S* dy, S* dq, S* dk, S* dv, S* block);

// The same of some keys at a time, of one sample: what was attended before is in y and log_sum, -infinity where nothing
// was, and what these keys add is joined with it. log_sum {heads, tokens}: a head's rows are `log_stride` values behind
// those of the one before. `work`: kFlashQueries * (keys + value_size) values.                       [RingAttention23]
template <class S>
void attend(const AttentionShape& shape, const S* q, const S* k, const S* v, S* y, S* log_sum, std::int64_t log_stride,
            S* work);
// Adds to the gradients. y and log_sum are those of all keys. k and v have the strides of dk and dv.
// `work`: 2 * kFlashQueries * keys values. dq may be null.
template <class S>
void attend_gradient(const AttentionShape& shape, const S* q, const S* k, const S* v, const S* y, const S* log_sum,
                     std::int64_t log_stride, const S* dy, S* dq, S* dk, S* dv, S* work);

// ---- tables ---------------------------------------------------------------------------------------------------------

// y[r] = table[index[r]]; every index lies within the table.
template <class S>
void embedding(std::int64_t rows, std::int64_t features, const std::int64_t* index, const S* table, S* y);
template <class S>
void embedding_weight_gradient(std::int64_t rows, std::int64_t features, const std::int64_t* index, const S* dy,
                               S* d_table);
// y[s][i] = x[s][i] + table[i]; values per sample.
template <class S>
void learned_table(std::int64_t samples, std::int64_t values, const S* x, const S* table, S* y);
template <class S>
void learned_table_weight_gradient(std::int64_t samples, std::int64_t values, const S* dy, S* d_table);

// ---- experts --------------------------------------------------------------------------------------------------------

// Tokens of one sample to rows of their experts and back, as ExpertRows says (core/model/program.hpp).
struct RowsOfExperts {
  std::int64_t tokens, experts, active, features;
};
// rows {experts, tokens * active / experts, features}
template <class S>
void dispatch(const RowsOfExperts& shape, const S* x, S* rows);
template <class S>
void dispatch_gradient(const RowsOfExperts& shape, const S* d_rows, S* dx);
// y[t] = the sum of its rows, each times its share {tokens, experts}, in the order of its copies. Null gradients are left out;
// shares of experts that a token does not go to have the gradient 0.
template <class S>
void combine(const RowsOfExperts& shape, const S* rows, const S* shares, S* y);
template <class S>
void combine_gradient(const RowsOfExperts& shape, const S* rows, const S* shares, const S* dy, S* d_rows, S* d_shares);

// ---- rows -----------------------------------------------------------------------------------------------------------

constexpr double kNormEpsilon = 1e-5;  // PyTorch's default of LayerNorm; Llama's of RMSNorm
// statistics {rows, 2}: mean and 1 / sqrt(variance + epsilon). weight and bias may be null.
template <class S>
void layer_norm(std::int64_t rows, std::int64_t features, const S* x, const S* weight, const S* bias, S* y,
                S* statistics);
template <class S>
void layer_norm_input_gradient(std::int64_t rows, std::int64_t features, const S* x, const S* statistics,
                               const S* weight, const S* dy, S* dx);
template <class S>
void layer_norm_weight_gradient(std::int64_t rows, std::int64_t features, const S* x, const S* statistics, const S* dy,
                                S* d_weight, S* d_bias);
// statistics {rows}: 1 / sqrt(mean square + epsilon).                                             [ZhangSennrich19]
template <class S>
void rms_norm(std::int64_t rows, std::int64_t features, const S* x, const S* weight, S* y, S* statistics);
template <class S>
void rms_norm_input_gradient(std::int64_t rows, std::int64_t features, const S* x, const S* statistics, const S* weight,
                             const S* dy, S* dx);
template <class S>
void rms_norm_weight_gradient(std::int64_t rows, std::int64_t features, const S* x, const S* statistics, const S* dy,
                              S* d_weight);

template <class S>
void softmax(std::int64_t rows, std::int64_t features, const S* x, S* y);
template <class S>
void softmax_input_gradient(std::int64_t rows, std::int64_t features, const S* y, const S* dy, S* dx);

// losses[s]: mean over the sample's rows of -log softmax(x)[label]; gradient = (softmax - 1 at the label) * scale.
template <class S>
void cross_entropy(std::int64_t samples, std::int64_t rows, std::int64_t classes, const S* x,
                   const std::int64_t* labels, S scale, S* losses, S* gradient);

// ---- values ---------------------------------------------------------------------------------------------------------

// y[i] = 0 where the 32 random bits of i are below `below`, else x[i] * factor: kernels/dropout.hpp, written again.
template <class S>
void dropout(std::uint64_t seed, std::uint64_t place, std::uint32_t below, S factor, std::int64_t n, const S* x, S* y);

enum class Function { Relu, Gelu, Silu, Tanh, Sigmoid };  // gelu: x (1 + erf(x / sqrt 2)) / 2    [HendrycksGimpel16]
template <class S>
void activation(Function function, std::int64_t n, const S* x, S* y);
// kept: y of relu, tanh and sigmoid, x of gelu and silu.
template <class S>
void activation_input_gradient(Function function, std::int64_t n, const S* kept, const S* dy, S* dx);
// y {rows, features} = function(first half of x) * second half; x {rows, 2 features}.
template <class S>
void gated(Function function, std::int64_t rows, std::int64_t features, const S* x, S* y);
template <class S>
void gated_input_gradient(Function function, std::int64_t rows, std::int64_t features, const S* x, const S* dy, S* dx);
template <class S>
void add(std::int64_t n, const S* a, const S* b, S* y);
template <class S>
void multiply(std::int64_t n, const S* a, const S* b, S* y);

// ---- windows and order ----------------------------------------------------------------------------------------------

struct PoolShape {
  std::int64_t channels, height_in, width_in, height_out, width_out, kernel, stride, padding;
};
// `position`: of the maximum in its plane, the first of equals; one 32-bit number per output value.
template <class S>
void max_pool(const PoolShape& shape, std::int64_t samples, const S* x, S* y, std::int32_t* position);
template <class S>
void max_pool_input_gradient(const PoolShape& shape, std::int64_t samples, const std::int32_t* position, const S* dy,
                             S* dx);
// The mean of the values that a window covers: padding does not count, as in TensorFlow.
template <class S>
void average_pool(const PoolShape& shape, std::int64_t samples, const S* x, S* y);
template <class S>
void average_pool_input_gradient(const PoolShape& shape, std::int64_t samples, const S* dy, S* dx);
template <class S>
void global_average_pool(std::int64_t planes, std::int64_t plane, const S* x, S* y);
template <class S>
void global_average_pool_input_gradient(std::int64_t planes, std::int64_t plane, const S* dy, S* dx);
// y {columns, rows} = x {rows, columns} transposed, `matrices` times.
template <class S>
void transpose(std::int64_t matrices, std::int64_t rows, std::int64_t columns, const S* x, S* y);
// Copies `columns` values of each row; strides count values.
template <class S>
void copy_rows(std::int64_t rows, std::int64_t columns, const S* x, std::int64_t x_stride, S* y, std::int64_t y_stride);

// ---- optimizers -----------------------------------------------------------------------------------------------------

// Formulas: runtime/backend.hpp. `rate` of adam holds the learning rate; correction1 = 1 - b1^step, correction2 alike.
template <class S>
void sgd(std::int64_t n, S rate, const S* w, const S* g, S* out);
template <class S>
void momentum(std::int64_t n, S rate, S mu, const S* w, const S* g, S* out, S* v);
template <class S>
void rmsprop(std::int64_t n, S rate, S rho, S epsilon, const S* w, const S* g, S* out, S* v);
template <class S>
void adam(std::int64_t n, S rate, S beta1, S beta2, S epsilon, S correction1, S correction2, const S* w, const S* g,
          S* out, S* m, S* v);

}  // namespace pipewright::runtime::cpu_kernels
