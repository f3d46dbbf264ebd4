// Attention: softmax(q k^T / sqrt(key_size)) v of every sample and head.                          [Vaswani17] 3.2.1
//
// `attention` stores the scores, and is made of products and softmax. `flash_attention` never does: of every row of
// scores it keeps the log of its sum, and the gradient computes the scores again.  [Dao22] algorithms 1 and 4
//
// Flash, forward, a team to a query, key by key, with m the largest score so far, l the sum of e^(s - m) and y their
// weighted sum of values:
//     m' = max(m, s);  y = e^(m - m') y + e^(s - m') v;  l alike;  at the end y / l, and m + log l
// Gradient, with p = e^(s - log sum) and D = sum(y dy) of a query:  ds = p (dp - D) scale, dp = dy v
//     teams of queries: dq = sum over keys of ds k;  teams of keys: dk = sum over queries of ds q, dv of p dy
//
// Sums run over keys or queries in ascending order, and over the heads that share a key head. Where p would be stored
// and read again it is not, so 16-bit values are rounded once. In tf32 q, k, v and dy are rounded; p and ds are not.
//
// Tests: tests/kernels/emulated_test.cpp, by the cases of kernel_cases.hpp
#pragma once

#include "kernels/products.hpp"
#include "kernels/rows.hpp"

namespace pipewright::kernels::grid_kernels {

struct AttentionPlaces : GpuAttentionShape {
  BatchPlace q() const { return {heads, queries * query_stride, key_size}; }
  BatchPlace k() const { return {heads, keys * key_stride, key_size, sharers()}; }
  BatchPlace v() const { return {heads, keys * value_stride, value_size, sharers()}; }
  BatchPlace y() const { return {heads, queries * y_stride(), value_size}; }
  BatchPlace scores() const { return {1, queries * keys}; }
  PIPEWRIGHT_BOTH I y_stride() const { return heads * value_size; }
  PIPEWRIGHT_BOTH I sharers() const { return heads / key_heads; }  // query heads of a key head
};

template <class F>
F attention_scale(const GpuAttentionShape& shape) {
  return 1 / std::sqrt(static_cast<F>(shape.key_size));
}

// p {samples, heads, queries, keys} keeps the scores after softmax, 0 where masked.
template <class Grid, class S>
void attention(const Grid& grid, const GpuAttentionShape& shape, I samples, const S* q, const S* k, const S* v, S* y,
               S* p) {
  using F = Arithmetic<S>;
  const AttentionPlaces a{shape};
  const I batches = samples * a.heads;
  product<F>(grid, "attention (scores)", batches, a.queries, a.keys, a.key_size, Matrix<S>{q, a.query_stride, 1, a.q()},
             Matrix<S>{k, 1, a.key_stride, a.k()}, OutMatrix<S>{p, a.keys, a.scores()});
  grid.rows("attention (softmax)", batches * a.queries,
            SoftmaxRow<S>{a.keys, a.causal ? a.queries : 0, attention_scale<F>(shape), p, p});
  product<F>(grid, "attention", batches, a.queries, a.value_size, a.keys, Matrix<S>{p, a.keys, 1, a.scores()},
             Matrix<S>{v, a.value_stride, 1, a.v()}, OutMatrix<S>{y, a.y_stride(), a.y()});
}

// d_scores: as large as p. Null gradients are left out; those of k and v are asked for together.
template <class Grid, class S>
void attention_gradient(const Grid& grid, const GpuAttentionShape& shape, I samples, const S* q, const S* k, const S* v,
                        const S* p, const S* dy, S* dq, S* dk, S* dv, S* d_scores) {
  using F = Arithmetic<S>;
  const AttentionPlaces a{shape};
  const I batches = samples * a.heads, key_batches = samples * a.key_heads;
  product<F>(grid, "attention_gradient (scores)", batches, a.queries, a.keys, a.value_size,
             Matrix<S>{dy, a.y_stride(), 1, a.y()}, Matrix<S>{v, 1, a.value_stride, a.v()},
             OutMatrix<S>{d_scores, a.keys, a.scores()});
  grid.rows("attention_gradient (softmax)", batches * a.queries,
            SoftmaxGradientRow<S>{a.keys, attention_scale<F>(shape), p, d_scores, d_scores});
  if (dq != nullptr)
    product<F>(grid, "attention_gradient (q)", batches, a.queries, a.key_size, a.keys,
               Matrix<S>{d_scores, a.keys, 1, a.scores()}, Matrix<S>{k, a.key_stride, 1, a.k()},
               OutMatrix<S>{dq, a.query_stride, a.q()});
  if (dk == nullptr || dv == nullptr) return;
  // k = query head within those that share the key head, then query: their scores follow one another.
  const BatchPlace scores = {1, a.sharers() * a.queries * a.keys};
  const auto of_key_heads = [&](I rows, I stride, I size) { return BatchPlace{a.key_heads, rows * stride, size}; };
  const auto sum_over_queries = [&](const char* name, const S* left, const S* right, I right_stride, I size, S* to,
                                    I stride) {
    const BatchPlace place = of_key_heads(a.queries, right_stride, a.sharers() * size);
    product<F>(grid, name, key_batches, a.keys, size, a.sharers() * a.queries, Matrix<S>{left, 1, a.keys, scores},
               Matrix<S>{right, right_stride, 1, place, a.queries, size},
               OutMatrix<S>{to, stride, of_key_heads(a.keys, stride, size)});
  };
  sum_over_queries("attention_gradient (k)", d_scores, q, a.query_stride, a.key_size, dk, a.key_stride);
  sum_over_queries("attention_gradient (v)", p, dy, a.y_stride(), a.value_size, dv, a.value_stride);
}

// ---- scores that are never stored -----------------------------------------------------------------------------------

constexpr int kFlashHead = 128;  // largest key_size and value_size

// Of one row of a tensor, or a sum of rows: a thread has columns t, t + 32, ...
template <class F>
struct FlashColumns {
  F at[kFlashHead / kWarp];
};

// What all kernels know.
template <class S>
struct Flash {
  using F = Arithmetic<S>;
  using Sums = PerThread<FlashColumns<F>>;
  AttentionPlaces places;
  F scale;
  bool tf32;
  const S *q, *k, *v;

  PIPEWRIGHT_BOTH I seen(I query) const {
    return places.causal ? query + 1 + places.keys - places.queries : places.keys;
  }
  PIPEWRIGHT_BOTH const S* query_row(I sample, I head, I i) const {
    return q + (sample * places.queries + i) * places.query_stride + head * places.key_size;
  }
  PIPEWRIGHT_BOTH const S* key_row(I sample, I head, I j) const {
    return k + (sample * places.keys + j) * places.key_stride + head / places.sharers() * places.key_size;
  }
  PIPEWRIGHT_BOTH const S* value_row(I sample, I head, I j) const {
    return v + (sample * places.keys + j) * places.value_stride + head / places.sharers() * places.value_size;
  }
  PIPEWRIGHT_BOTH I out_place(I sample, I head, I i) const {
    return (sample * places.queries + i) * places.y_stride() + head * places.value_size;
  }

  template <class T>
  PIPEWRIGHT_TEAM F dot(const T& team, I size, const S* x, const S* y) const {
    return row_sum(team, size, [&](I c) { return factor<F>(x[c], tf32) * factor<F>(y[c], tf32); });
  }
  // sums = kept sums + weight row.
  template <class T>
  PIPEWRIGHT_TEAM void add(const T& team, Sums& sums, F kept, F weight, const S* row, I size) const {
    team.each([&](int t) {
      for (int n = 0; n < kFlashHead / kWarp; ++n)
        if (const int c = t + n * kWarp; c < size)
          sums.of(t).at[n] = kept * sums.of(t).at[n] + weight * factor<F>(row[c], tf32);
    });
  }
  template <class T>
  PIPEWRIGHT_TEAM static void store(const T& team, Sums& sums, F share, I size, S* out) {
    team.each([&](int t) {
      for (int n = 0; n < kFlashHead / kWarp; ++n)
        if (const int c = t + n * kWarp; c < size) out[c] = S(sums.of(t).at[n] * share);
    });
  }
};

// Row: (sample, head, query).
template <class S>
struct FlashForward : Flash<S> {
  using F = Arithmetic<S>;
  S* y;
  F* log_sum;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, I row) const {
    const auto& a = this->places;
    const I i = row % a.queries, head = row / a.queries % a.heads, sample = row / a.queries / a.heads;
    typename Flash<S>::Sums sums;
    F largest = F(-INFINITY), total = 0;
    for (I j = 0; j < this->seen(i); ++j) {
      const F s = this->dot(team, a.key_size, this->query_row(sample, head, i), this->key_row(sample, head, j));
      const F most = Larger{}(largest, s * this->scale), shrunk = std::exp(largest - most);
      const F p = std::exp(s * this->scale - most);
      largest = most, total = shrunk * total + p;
      this->add(team, sums, shrunk, p, this->value_row(sample, head, j), a.value_size);
    }
    this->store(team, sums, F(1) / total, a.value_size, y + this->out_place(sample, head, i));
    team.each([&](int t) {
      if (t == 0) log_sum[row] = largest + std::log(total);
    });
  }
};

// D of every query and head.
template <class S>
struct FlashOutputs {
  using F = Arithmetic<S>;
  Flash<S> flash;
  const S *y, *dy;
  F* sums;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, I row) const {
    const auto& a = flash.places;
    const I at = flash.out_place(row / a.queries / a.heads, row / a.queries % a.heads, row % a.queries);
    const F sum = row_sum(team, a.value_size, [&](I j) { return F(y[at + j]) * F(dy[at + j]); });
    team.each([&](int t) {
      if (t == 0) sums[row] = sum;
    });
  }
};

// kQueries: rows are (sample, head, query), and what is computed is dq; else (sample, key head, key), dk and dv.
template <class S, bool kQueries>
struct FlashGradient : Flash<S> {
  using F = Arithmetic<S>;
  const F *log_sum, *outputs;
  const S* dy;
  S *dq, *dk, *dv;

  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, I row) const {
    const auto& a = this->places;
    typename Flash<S>::Sums first, second;
    if constexpr (kQueries) {
      const I i = row % a.queries, head = row / a.queries % a.heads, sample = row / a.queries / a.heads;
      for (I j = 0; j < this->seen(i); ++j)
        pair(team, sample, head, i, j,
             [&](F, F ds) { this->add(team, first, F(1), ds, this->key_row(sample, head, j), a.key_size); });
      this->store(team, first, F(1), a.key_size, dq + (this->query_row(sample, head, i) - this->q));
    } else {
      const I j = row % a.keys, head = row / a.keys % a.key_heads * a.sharers(), sample = row / a.keys / a.key_heads;
      const I begin = a.causal && j > a.keys - a.queries ? j - (a.keys - a.queries) : 0;  // of those that see the key
      for (I sharer = head; sharer < head + a.sharers(); ++sharer)
        for (I i = begin; i < a.queries; ++i)
          pair(team, sample, sharer, i, j, [&](F p, F ds) {
            this->add(team, first, F(1), ds, this->query_row(sample, sharer, i), a.key_size);
            this->add(team, second, F(1), p, dy + this->out_place(sample, sharer, i), a.value_size);
          });
      this->store(team, first, F(1), a.key_size, dk + (this->key_row(sample, head, j) - this->k));
      this->store(team, second, F(1), a.value_size, dv + (this->value_row(sample, head, j) - this->v));
    }
  }

 private:
  template <class T, class Use>
  PIPEWRIGHT_TEAM void pair(const T& team, I sample, I head, I i, I j, const Use& use) const {
    const auto& a = this->places;
    const I row = (sample * a.heads + head) * a.queries + i;
    const F s = this->dot(team, a.key_size, this->query_row(sample, head, i), this->key_row(sample, head, j));
    const F p = std::exp(s * this->scale - log_sum[row]);
    const F dp = this->dot(team, a.value_size, dy + this->out_place(sample, head, i), this->value_row(sample, head, j));
    use(p, p * (dp - outputs[row]) * this->scale);
  }
};

template <class Grid, class S>
Flash<S> flash_of(const Grid& grid, const GpuAttentionShape& shape, const S* q, const S* k, const S* v) {
  return {AttentionPlaces{shape}, attention_scale<Arithmetic<S>>(shape), grid.tf32, q, k, v};
}

// As `attention`, but for what is kept: log_sum {samples, heads, queries}. key_size and value_size at most kFlashHead.
template <class Grid, class S>
void flash_attention(const Grid& grid, const GpuAttentionShape& shape, I samples, const S* q, const S* k, const S* v,
                     S* y, Arithmetic<S>* log_sum) {
  grid.rows("flash_attention", samples * shape.heads * shape.queries,
            FlashForward<S>{flash_of(grid, shape, q, k, v), y, log_sum});
}

// workspace: samples * heads * queries values. Null gradients are left out; those of k and v are asked for together.
template <class Grid, class S>
void flash_attention_gradient(const Grid& grid, const GpuAttentionShape& shape, I samples, const S* q, const S* k,
                              const S* v, const S* y, const Arithmetic<S>* log_sum, const S* dy, S* dq, S* dk, S* dv,
                              Arithmetic<S>* workspace) {
  const Flash<S> flash = flash_of(grid, shape, q, k, v);
  const I queries = samples * shape.heads * shape.queries;
  grid.rows("flash_attention_gradient (outputs)", queries, FlashOutputs<S>{flash, y, dy, workspace});
  if (dq != nullptr)
    grid.rows("flash_attention_gradient (q)", queries,
              FlashGradient<S, true>{flash, log_sum, workspace, dy, dq, dk, dv});
  if (dk != nullptr && dv != nullptr)
    grid.rows("flash_attention_gradient (k, v)", samples * shape.key_heads * shape.keys,
              FlashGradient<S, false>{flash, log_sum, workspace, dy, dq, dk, dv});
}

}  // namespace pipewright::kernels::grid_kernels
