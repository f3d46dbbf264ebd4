// Products of matrices by tiles of 128 x 128, in the arithmetic of the stored type S: dense, convolution, attention.
//
// Every value of a product is one sum over k = 0, 1, 2, ... in that order, whatever the grid: no split of k, no atomic
// addition, the same bits for any number of blocks. A block works at one tile, in steps of 8 along k, and each of its
// 256 threads holds 8 x 8 sums, at rows and columns 16 apart, so that a warp reads and writes neighbours.
//
// A and B are functions (batch, row, column) -> value, so that a convolution is the same product over values that are
// looked up where they lie (implicit GEMM); C takes (head of the column, batch, row, column, sum). Where the grid says
// tf32, factors are rounded to it on their way into the tile; sums are not.
#pragma once

#include <limits>
#include <type_traits>

#include "kernels/columns.hpp"
#include "kernels/gpu_shapes.hpp"
#include "kernels/rows.hpp"

namespace pipewright::grid_kernels {

constexpr int kTile = 128, kDepth = 8, kSide = 16, kEach = kTile / kSide;
static_assert(kSide * kSide == kBlock);

template <class S>
struct TileShared {
  S a[kDepth][kTile + 4], b[kDepth][kTile + 4];  // + 4: neighbours in k do not meet in one bank
};
template <class S>
struct TileSums {
  S at[kEach][kEach];
};

template <class S, class A, class B, class C>
struct ProductTile {
  std::int64_t m, n, k, tiles_down, tiles_across;
  A a;
  B b;
  C c;
  bool tf32;

  template <class T, class Registers>
  PIPEWRIGHT_TEAM void operator()(const T& team, TileShared<S>& shared, Registers& registers, std::int64_t tile) const {
    const std::int64_t batch = tile / (tiles_down * tiles_across), in_batch = tile % (tiles_down * tiles_across);
    const std::int64_t top = in_batch / tiles_across * kTile, left = in_batch % tiles_across * kTile;
    team.each([&](int t) {
      PIPEWRIGHT_UNROLL
      for (int i = 0; i < kEach; ++i)
        PIPEWRIGHT_UNROLL
      for (int j = 0; j < kEach; ++j)
        registers.of(t).at[i][j] = 0;
    });
    for (std::int64_t first = 0; first < k; first += kDepth) {
      team.each([&](int t) { load(shared, t, batch, top, left, first); });
      team.each([&](int t) { multiply(shared, t, registers.of(t)); });
    }
    team.each([&](int t) {
      PIPEWRIGHT_UNROLL
      for (int j = 0; j < kEach; ++j) {
        const std::int64_t column = left + t % kSide + kSide * j;
        if (column >= n) continue;
        const std::int64_t head = c.head(batch, column);  // divides; the rows below it only add
        PIPEWRIGHT_UNROLL
        for (int i = 0; i < kEach; ++i)
          if (const std::int64_t row = top + t / kSide + kSide * i; row < m)
            c(head, batch, row, column, registers.of(t).at[i][j]);
      }
    });
  }

 private:
  // Neighbouring threads read along whichever index lies side by side in memory.
  PIPEWRIGHT_BOTH void load(TileShared<S>& shared, int t, std::int64_t batch, std::int64_t top, std::int64_t left,
                            std::int64_t first) const {
    PIPEWRIGHT_UNROLL
    for (int step = 0; step < kTile * kDepth / kBlock; ++step) {
      const int at = t + step * kBlock;
      const int along = at / kDepth, deep = at % kDepth, across = at % kTile, low = at / kTile;
      const int i = a.k_is_adjacent() ? along : across, ka = a.k_is_adjacent() ? deep : low;
      const int j = b.k_is_adjacent() ? along : across, kb = b.k_is_adjacent() ? deep : low;
      shared.a[ka][i] = top + i < m && first + ka < k ? factor(a(batch, top + i, first + ka)) : S(0);
      shared.b[kb][j] = left + j < n && first + kb < k ? factor(b(batch, first + kb, left + j)) : S(0);
    }
  }
  PIPEWRIGHT_BOTH S factor(S x) const {
    if constexpr (std::is_same_v<S, float>) return tf32 ? in_tf32(x) : x;
    return x;
  }
  PIPEWRIGHT_BOTH static void multiply(const TileShared<S>& shared, int t, TileSums<S>& sums) {
    const int row = t / kSide, column = t % kSide;
    PIPEWRIGHT_UNROLL
    for (int deep = 0; deep < kDepth; ++deep) {
      S x[kEach], y[kEach];
      PIPEWRIGHT_UNROLL
      for (int i = 0; i < kEach; ++i)
        x[i] = shared.a[deep][row + kSide * i], y[i] = shared.b[deep][column + kSide * i];
      PIPEWRIGHT_UNROLL
      for (int i = 0; i < kEach; ++i)
        PIPEWRIGHT_UNROLL
      for (int j = 0; j < kEach; ++j)
        sums.at[i][j] += x[i] * y[j];
    }
  }
};

// S: of the sums.
template <class S, class Grid, class A, class B, class C>
void product(const Grid& grid, const char* name, std::int64_t batches, std::int64_t m, std::int64_t n, std::int64_t k,
             const A& a, const B& b, const C& c) {
  const std::int64_t down = (m + kTile - 1) / kTile, across = (n + kTile - 1) / kTile;
  grid.template tiles<TileShared<S>, TileSums<S>>(
      name, batches * down * across, ProductTile<S, A, B, C>{m, n, k, down, across, a, b, c, grid.factors_in_tf32()});
}

// ---- dense ----------------------------------------------------------------------------------------------------------

// Where batch b begins: b / inner samples and b % inner / sharers heads on.
struct BatchPlace {
  std::int64_t inner = 1, outer_stride = 0, inner_stride = 0, sharers = 1;
  PIPEWRIGHT_BOTH std::int64_t operator()(std::int64_t batch) const {
    return batch / inner * outer_stride + batch % inner / sharers * inner_stride;
  }
};

template <class S>
struct LeftMatrix {  // (row, k)
  const S* data;
  std::int64_t row_stride, k_stride;
  BatchPlace place{};
  PIPEWRIGHT_BOTH bool k_is_adjacent() const { return k_stride == 1; }
  PIPEWRIGHT_BOTH Arithmetic<S> operator()(std::int64_t batch, std::int64_t row, std::int64_t k) const {
    return data[place(batch) + row * row_stride + k * k_stride];
  }
};
template <class S>
struct RightMatrix {  // (k, column); from one stretch of `fold` rows to the next: fold_stride
  const S* data;
  std::int64_t k_stride, column_stride;
  BatchPlace place{};
  std::int64_t fold = std::numeric_limits<std::int64_t>::max(), fold_stride = 0;
  PIPEWRIGHT_BOTH bool k_is_adjacent() const { return k_stride == 1; }
  PIPEWRIGHT_BOTH Arithmetic<S> operator()(std::int64_t batch, std::int64_t k, std::int64_t column) const {
    const std::int64_t at = k < fold ? k * k_stride : k / fold * fold_stride + k % fold * k_stride;
    return data[place(batch) + at + column * column_stride];
  }
};
// S: of the output. Bias: stored as the factors are.
template <class S, class Bias = S>
struct OutMatrix {
  S* data;
  std::int64_t row_stride;
  BatchPlace place{};
  const Bias* bias = nullptr;  // per column, or null
  bool add = false;            // to what is there
  PIPEWRIGHT_BOTH std::int64_t head(std::int64_t batch, std::int64_t column) const { return place(batch) + column; }
  PIPEWRIGHT_BOTH void operator()(std::int64_t head, std::int64_t, std::int64_t row, std::int64_t column,
                                  Arithmetic<S> sum) const {
    S& out = data[head + row * row_stride];
    const Arithmetic<S> value = bias == nullptr ? sum : sum + bias[column];
    out = S(add ? out + value : value);
  }
};

// y {rows, out} = x {rows, in} w^T + bias; w {out, in}; bias may be null.
template <class Grid, class S>
void linear(const Grid& grid, std::int64_t rows, std::int64_t in, std::int64_t out, const S* x, const S* w,
            const S* bias, S* y) {
  product<Arithmetic<S>>(grid, "linear", 1, rows, out, in, LeftMatrix<S>{x, in, 1}, RightMatrix<S>{w, 1, in},
                         OutMatrix<S>{y, out, {}, bias});
}
template <class Grid, class S>
void linear_input_gradient(const Grid& grid, std::int64_t rows, std::int64_t in, std::int64_t out, const S* dy,
                           const S* w, S* dx) {
  product<Arithmetic<S>>(grid, "linear_input_gradient", 1, rows, in, out, LeftMatrix<S>{dy, out, 1},
                         RightMatrix<S>{w, in, 1}, OutMatrix<S>{dx, in});
}
// Added to dw and db; db may be null. workspace: columns_workspace(rows, out) values where there is db.
template <class Grid, class S>
void linear_weight_gradient(const Grid& grid, std::int64_t rows, std::int64_t in, std::int64_t out, const S* x,
                            const S* dy, Arithmetic<S>* dw, Arithmetic<S>* db, Arithmetic<S>* workspace) {
  product<Arithmetic<S>>(grid, "linear_weight_gradient", 1, out, in, rows, LeftMatrix<S>{dy, 1, out},
                         RightMatrix<S>{x, in, 1}, OutMatrix<Arithmetic<S>>{dw, in, {}, nullptr, true});
  if (db != nullptr) bias_gradient(grid, rows, out, dy, db, workspace);
}

// ---- convolution ----------------------------------------------------------------------------------------------------

// Batch: the group. Columns: all samples' places side by side, so that small images fill tiles, too.
struct Conv : GpuConvShape {
  PIPEWRIGHT_BOTH std::int64_t in() const { return channels_in / groups; }
  PIPEWRIGHT_BOTH std::int64_t out() const { return channels_out / groups; }
  PIPEWRIGHT_BOTH std::int64_t window() const { return kernel_height * kernel_width; }
  PIPEWRIGHT_BOTH std::int64_t taps() const { return in() * window(); }
  PIPEWRIGHT_BOTH std::int64_t places() const { return height_out * width_out; }
  PIPEWRIGHT_BOTH std::int64_t plane() const { return height_in * width_in; }
};

// The input value that tap and place (of all samples) meet; 0 in the padding.
template <class S>
struct ConvInput {
  Conv conv;
  const S* x;
  PIPEWRIGHT_BOTH Arithmetic<S> at(std::int64_t group, std::int64_t tap, std::int64_t place) const {
    const std::int64_t channel = tap / conv.window(), in_window = tap % conv.window();
    const std::int64_t sample = place / conv.places(), at = place % conv.places();
    const std::int64_t row = at / conv.width_out * conv.stride + in_window / conv.kernel_width - conv.padding_height;
    const std::int64_t column = at % conv.width_out * conv.stride + in_window % conv.kernel_width - conv.padding_width;
    if (row < 0 || row >= conv.height_in || column < 0 || column >= conv.width_in) return 0;
    return x[((sample * conv.groups + group) * conv.in() + channel) * conv.plane() + row * conv.width_in + column];
  }
};
template <class S>
struct ConvInputByTap : ConvInput<S> {  // (tap, place)
  PIPEWRIGHT_BOTH bool k_is_adjacent() const { return false; }
  PIPEWRIGHT_BOTH Arithmetic<S> operator()(std::int64_t group, std::int64_t tap, std::int64_t place) const {
    return this->at(group, tap, place);
  }
};
template <class S>
struct ConvInputByPlace : ConvInput<S> {  // (place, tap)
  PIPEWRIGHT_BOTH bool k_is_adjacent() const { return true; }
  PIPEWRIGHT_BOTH Arithmetic<S> operator()(std::int64_t group, std::int64_t place, std::int64_t tap) const {
    return this->at(group, tap, place);
  }
};
// (output channel, place of all samples) of y or dy.
template <class S>
struct ConvOutput {
  Conv conv;
  const S* dy;
  PIPEWRIGHT_BOTH bool k_is_adjacent() const { return true; }
  PIPEWRIGHT_BOTH Arithmetic<S> operator()(std::int64_t group, std::int64_t channel, std::int64_t place) const {
    return dy[((place / conv.places() * conv.groups + group) * conv.out() + channel) * conv.places() +
              place % conv.places()];
  }
};
// Row: input channel; k: output channel and tap of its window.
template <class S>
struct ConvWeightByInput {
  Conv conv;
  const S* w;
  PIPEWRIGHT_BOTH bool k_is_adjacent() const { return true; }
  PIPEWRIGHT_BOTH Arithmetic<S> operator()(std::int64_t group, std::int64_t channel, std::int64_t k) const {
    const std::int64_t out = group * conv.out() + k / conv.window();
    return w[(out * conv.in() + channel) * conv.window() + k % conv.window()];
  }
};
// k: output channel and tap; column: input place of all samples. The one output that meets the place by this tap.
template <class S>
struct ConvOutputByInput {
  Conv conv;
  const S* dy;
  PIPEWRIGHT_BOTH bool k_is_adjacent() const { return false; }
  PIPEWRIGHT_BOTH Arithmetic<S> operator()(std::int64_t group, std::int64_t k, std::int64_t place) const {
    const std::int64_t channel = k / conv.window(), in_window = k % conv.window();
    const std::int64_t sample = place / conv.plane(), at = place % conv.plane();
    const std::int64_t row = at / conv.width_in + conv.padding_height - in_window / conv.kernel_width;
    const std::int64_t column = at % conv.width_in + conv.padding_width - in_window % conv.kernel_width;
    if (row < 0 || column < 0 || row % conv.stride != 0 || column % conv.stride != 0) return 0;
    const std::int64_t y = row / conv.stride, x = column / conv.stride;
    if (y >= conv.height_out || x >= conv.width_out) return 0;
    return dy[((sample * conv.groups + group) * conv.out() + channel) * conv.places() + y * conv.width_out + x];
  }
};
// (channel of the group, place of all samples); planes of `plane` values.
template <class S>
struct ConvPlanes {
  std::int64_t groups, channels, plane;
  S* data;
  const S* bias = nullptr;  // per channel
  PIPEWRIGHT_BOTH std::int64_t head(std::int64_t group, std::int64_t place) const {
    return (place / plane * groups + group) * channels * plane + place % plane;
  }
  PIPEWRIGHT_BOTH void operator()(std::int64_t head, std::int64_t group, std::int64_t channel, std::int64_t,
                                  Arithmetic<S> sum) const {
    data[head + channel * plane] = S(bias == nullptr ? sum : sum + bias[group * channels + channel]);
  }
};

template <class Grid, class S>
void conv2d(const Grid& grid, const GpuConvShape& shape, std::int64_t samples, const S* x, const S* w, const S* bias,
            S* y) {
  const Conv c{shape};
  product<Arithmetic<S>>(grid, "conv2d", c.groups, c.out(), samples * c.places(), c.taps(),
                         LeftMatrix<S>{w, c.taps(), 1, {1, c.out() * c.taps()}}, ConvInputByTap<S>{{c, x}},
                         ConvPlanes<S>{c.groups, c.out(), c.places(), y, bias});
}
template <class Grid, class S>
void conv2d_input_gradient(const Grid& grid, const GpuConvShape& shape, std::int64_t samples, const S* dy, const S* w,
                           S* dx) {
  const Conv c{shape};
  product<Arithmetic<S>>(grid, "conv2d_input_gradient", c.groups, c.in(), samples * c.plane(), c.out() * c.window(),
                         ConvWeightByInput<S>{c, w}, ConvOutputByInput<S>{c, dy},
                         ConvPlanes<S>{c.groups, c.in(), c.plane(), dx});
}

// db[channel] += the sum of its planes of all samples.
template <class S>
struct ChannelSumRow {
  std::int64_t samples, channels, plane;
  using F = Arithmetic<S>;
  const S* dy;
  F* db;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, std::int64_t channel) const {
    const F total = row_sum(team, samples * plane, [&](std::int64_t i) {
      return F(dy[(i / plane * channels + channel) * plane + i % plane]);
    });
    team.each([&](int t) {
      if (t == 0) db[channel] += total;
    });
  }
};
// Added to dw and db; db may be null.
template <class Grid, class S>
void conv2d_weight_gradient(const Grid& grid, const GpuConvShape& shape, std::int64_t samples, const S* x, const S* dy,
                            Arithmetic<S>* dw, Arithmetic<S>* db) {
  const Conv c{shape};
  product<Arithmetic<S>>(grid, "conv2d_weight_gradient", c.groups, c.out(), c.taps(), samples * c.places(),
                         ConvOutput<S>{c, dy}, ConvInputByPlace<S>{{c, x}},
                         OutMatrix<Arithmetic<S>>{dw, c.taps(), {1, c.out() * c.taps()}, nullptr, true});
  if (db != nullptr)
    grid.rows("conv2d_weight_gradient (bias)", c.channels_out, samples * c.places(),
              ChannelSumRow<S>{samples, c.channels_out, c.places(), dy, db});
}

// ---- attention ------------------------------------------------------------------------------------------------------

struct AttentionPlaces : GpuAttentionShape {
  BatchPlace q() const { return {heads, queries * query_stride, key_size}; }
  BatchPlace k() const { return {heads, keys * key_stride, key_size, heads / key_heads}; }
  BatchPlace v() const { return {heads, keys * value_stride, value_size, heads / key_heads}; }
  BatchPlace y() const { return {heads, queries * y_stride(), value_size}; }
  BatchPlace scores() const { return {1, queries * keys}; }
  PIPEWRIGHT_BOTH std::int64_t y_stride() const { return heads * value_size; }
  // Batches of key heads: the sums over the query heads that share one.
  PIPEWRIGHT_BOTH std::int64_t sharers() const { return heads / key_heads; }
};

// softmax(q k^T / sqrt(key_size)) v of every sample and head; p {samples, heads, queries, keys} keeps the scores after
// softmax, 0 where masked.                                                                          [Vaswani17] 3.2.1
template <class Grid, class S>
void attention(const Grid& grid, const GpuAttentionShape& shape, std::int64_t samples, const S* q, const S* k,
               const S* v, S* y, S* p) {
  const AttentionPlaces a{shape};
  const std::int64_t batches = samples * a.heads;
  product<Arithmetic<S>>(grid, "attention (scores)", batches, a.queries, a.keys, a.key_size,
                         LeftMatrix<S>{q, a.query_stride, 1, a.q()}, RightMatrix<S>{k, 1, a.key_stride, a.k()},
                         OutMatrix<S>{p, a.keys, a.scores()});
  const Arithmetic<S> scale = 1 / std::sqrt(static_cast<Arithmetic<S>>(a.key_size));
  rows_by_pieces<S>(grid, "attention (softmax)", batches * a.queries, a.keys,
                    AttentionSoftmaxRow<S>{a.queries, a.keys, a.causal, scale, p}, p);
  product<Arithmetic<S>>(grid, "attention", batches, a.queries, a.value_size, a.keys,
                         LeftMatrix<S>{p, a.keys, 1, a.scores()}, RightMatrix<S>{v, a.value_stride, 1, a.v()},
                         OutMatrix<S>{y, a.y_stride(), a.y()});
}

// d_scores: as large as p. Null gradients are left out; those of k and v are asked for together.
template <class Grid, class S>
void attention_gradient(const Grid& grid, const GpuAttentionShape& shape, std::int64_t samples, const S* q, const S* k,
                        const S* v, const S* p, const S* dy, S* dq, S* dk, S* dv, S* d_scores) {
  const AttentionPlaces a{shape};
  const std::int64_t batches = samples * a.heads, key_batches = samples * a.key_heads;
  product<Arithmetic<S>>(grid, "attention_gradient (scores)", batches, a.queries, a.keys, a.value_size,
                         LeftMatrix<S>{dy, a.y_stride(), 1, a.y()}, RightMatrix<S>{v, 1, a.value_stride, a.v()},
                         OutMatrix<S>{d_scores, a.keys, a.scores()});
  const Arithmetic<S> scale = 1 / std::sqrt(static_cast<Arithmetic<S>>(a.key_size));
  rows_by_pieces<S>(grid, "attention_gradient (softmax)", batches * a.queries, a.keys,
                    SoftmaxGradientRow<S>{a.keys, scale, p, d_scores, d_scores}, p, d_scores);
  if (dq != nullptr)
    product<Arithmetic<S>>(grid, "attention_gradient (q)", batches, a.queries, a.key_size, a.keys,
                           LeftMatrix<S>{d_scores, a.keys, 1, a.scores()}, RightMatrix<S>{k, a.key_stride, 1, a.k()},
                           OutMatrix<S>{dq, a.query_stride, a.q()});
  if (dk == nullptr || dv == nullptr) return;
  // k = query head within those that share the key head, then query: their scores follow one another.
  const BatchPlace shared_scores = {1, a.sharers() * a.queries * a.keys};
  const auto of_key_heads = [&](std::int64_t rows, std::int64_t stride, std::int64_t size) {
    return BatchPlace{a.key_heads, rows * stride, size};
  };
  const std::int64_t depth = a.sharers() * a.queries;
  product<Arithmetic<S>>(
      grid, "attention_gradient (k)", key_batches, a.keys, a.key_size, depth,
      LeftMatrix<S>{d_scores, 1, a.keys, shared_scores},
      RightMatrix<S>{q, a.query_stride, 1, of_key_heads(a.queries, a.query_stride, a.sharers() * a.key_size), a.queries,
                     a.key_size},
      OutMatrix<S>{dk, a.key_stride, of_key_heads(a.keys, a.key_stride, a.key_size)});
  product<Arithmetic<S>>(
      grid, "attention_gradient (v)", key_batches, a.keys, a.value_size, depth,
      LeftMatrix<S>{p, 1, a.keys, shared_scores},
      RightMatrix<S>{dy, a.y_stride(), 1, of_key_heads(a.queries, a.y_stride(), a.sharers() * a.value_size), a.queries,
                     a.value_size},
      OutMatrix<S>{dv, a.value_stride, of_key_heads(a.keys, a.value_stride, a.value_size)});
}

}  // namespace pipewright::grid_kernels
