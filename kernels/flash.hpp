// Attention whose scores are never stored: of every row of them the log of its sum is kept, and the gradient computes
// the scores anew.                                                          [Dao22] algorithms 1 and 4 (appendix B)
//
// A block owns 16 rows, queries or keys, and walks along the others by 32. Forward, for its queries, key tile by key
// tile, with m the largest score so far, l the sum of e^(s - m) and y their weighted sum of values:
//     m' = max(m, max s);  y = e^(m - m') y + sum e^(s - m') v;  l alike;  at the end y / l, and m + log l
// Gradient, with p = e^(s - log sum) and D = sum(y dy) of a query:  ds = p (dp - D) scale, dp = dy v
//     blocks of queries: dq = sum over keys of ds k;  blocks of keys: dk = sum over queries of ds q, dv of p dy
//
// Sums run over columns, keys or queries in ascending order, and over the heads that share a key head: no atomics, the
// same bits on any grid. Where p would be stored and read again it is not, so 16-bit values are rounded once. In tf32
// q, k, v and dy are rounded; p and ds, which no tensor core sees, are not.
//
// Tests: tests/kernels/emulated_test.cpp, by the cases of kernel_cases.hpp
#pragma once

#include <cmath>
#include <type_traits>

#include "kernels/rows.hpp"
#include "kernels/tiles.hpp"

namespace pipewright::grid_kernels {

constexpr int kFlashOwn = 16, kFlashAlong = 32;
constexpr int kFlashHead = 128;                      // largest key_size and value_size
constexpr int kFlashSide = kBlock / kFlashOwn;       // threads of an own row
constexpr int kFlashSums = kFlashHead / kFlashSide;  // columns of a thread

template <class F>
struct FlashShared {
  F own[2][kFlashOwn][kFlashHead + 1];  // + 1: rows do not meet in one bank
  F along[kFlashAlong][kFlashHead + 1];
  F p[kFlashOwn][kFlashAlong + 1];
  F ds[kFlashOwn][kFlashAlong + 1];
  F largest[kFlashOwn], total[kFlashOwn], shrunk[kFlashOwn];  // m, l, e^(m - m')
};
template <class F>
struct FlashSums {
  F a[kFlashSums], b[kFlashSums];
};

// What all three kernels know.
template <class S>
struct Flash {
  using F = Arithmetic<S>;
  AttentionPlaces places;
  F scale;
  bool tf32;
  const S *q, *k, *v;

  PIPEWRIGHT_BOTH F factor(S x) const {
    if constexpr (std::is_same_v<F, float>) return tf32 ? in_tf32(x) : F(x);
    return F(x);
  }
  PIPEWRIGHT_BOTH std::int64_t seen(std::int64_t query) const {
    return places.causal ? query + 1 + places.keys - places.queries : places.keys;
  }
  PIPEWRIGHT_BOTH const S* query_row(std::int64_t sample, std::int64_t head, std::int64_t i) const {
    return q + (sample * places.queries + i) * places.query_stride + head * places.key_size;
  }
  PIPEWRIGHT_BOTH const S* key_row(std::int64_t sample, std::int64_t head, std::int64_t j) const {
    return k + (sample * places.keys + j) * places.key_stride + head / places.sharers() * places.key_size;
  }
  PIPEWRIGHT_BOTH const S* value_row(std::int64_t sample, std::int64_t head, std::int64_t j) const {
    return v + (sample * places.keys + j) * places.value_stride + head / places.sharers() * places.value_size;
  }
  PIPEWRIGHT_BOTH std::int64_t out_place(std::int64_t sample, std::int64_t head, std::int64_t i) const {
    return (sample * places.queries + i) * places.y_stride() + head * places.value_size;
  }
  // Of the sums that are kept per query and head.
  PIPEWRIGHT_BOTH std::int64_t row_place(std::int64_t sample, std::int64_t head, std::int64_t i) const {
    return (sample * places.heads + head) * places.queries + i;
  }

  // A tile of `count` rows of `size` values, row(i) each; zeros where there are none.
  template <class Row>
  PIPEWRIGHT_BOTH void load(int t, F (*tile)[kFlashHead + 1], int rows, std::int64_t count, std::int64_t size,
                            const Row& row) const {
    for (int r = t / kFlashSide; r < rows; r += kBlock / kFlashSide)
      for (int c = t % kFlashSide; c < size; c += kFlashSide)
        tile[r][c] = r < count ? factor(row(r)[c]) : F(0);
  }
  PIPEWRIGHT_BOTH static F dot(const F* x, const F* y, std::int64_t size) {
    F sum = 0;
    for (std::int64_t c = 0; c < size; ++c)
      sum += x[c] * y[c];
    return sum;
  }
  // sums[column] += sum over the tile's rows of weight[r] * tile[r][column].
  PIPEWRIGHT_BOTH static void add_weighted(int t, F* sums, const F* weight, const F (*tile)[kFlashHead + 1],
                                           std::int64_t size) {
    PIPEWRIGHT_UNROLL
    for (int c = 0; c < kFlashSums; ++c) {
      const int column = t % kFlashSide + kFlashSide * c;
      if (column >= size) continue;
      F sum = sums[c];
      for (int r = 0; r < kFlashAlong; ++r)
        sum += weight[r] * tile[r][column];
      sums[c] = sum;
    }
  }
  PIPEWRIGHT_BOTH static void clear(FlashSums<F>& sums) {
    PIPEWRIGHT_UNROLL
    for (int c = 0; c < kFlashSums; ++c)
      sums.a[c] = sums.b[c] = 0;
  }
  // out[column] = sums * share for this thread's columns of an own row.
  PIPEWRIGHT_BOTH static void store(int t, const F* sums, F share, std::int64_t size, S* out) {
    PIPEWRIGHT_UNROLL
    for (int c = 0; c < kFlashSums; ++c)
      if (const int column = t % kFlashSide + kFlashSide * c; column < size) out[column] = S(sums[c] * share);
  }
  PIPEWRIGHT_BOTH static std::int64_t least(std::int64_t x, std::int64_t y) { return x < y ? x : y; }
};

// Tile: 16 queries of a sample and head.
template <class S>
struct FlashForward : Flash<S> {
  using F = Arithmetic<S>;
  std::int64_t tiles_of_head;
  S* y;
  F* log_sum;

  template <class T, class Registers>
  PIPEWRIGHT_TEAM void operator()(const T& team, FlashShared<F>& s, Registers& registers, std::int64_t tile) const {
    const auto& a = this->places;
    const std::int64_t first = tile % tiles_of_head * kFlashOwn, batch = tile / tiles_of_head;
    const std::int64_t head = batch % a.heads, sample = batch / a.heads;
    const std::int64_t own = this->least(kFlashOwn, a.queries - first), keys = this->seen(first + own - 1);
    team.each([&](int t) {
      this->clear(registers.of(t));
      this->load(t, s.own[0], kFlashOwn, own, a.key_size,
                 [&](int r) { return this->query_row(sample, head, first + r); });
      if (t < kFlashOwn) s.largest[t] = F(-INFINITY), s.total[t] = 0;
    });
    for (std::int64_t key = 0; key < keys; key += kFlashAlong) {
      const std::int64_t along = this->least(kFlashAlong, keys - key);
      team.each([&](int t) {
        this->load(t, s.along, kFlashAlong, along, a.key_size,
                   [&](int r) { return this->key_row(sample, head, key + r); });
      });
      team.each([&](int t) {
        const int r = t / kFlashSide;
        for (int c = t % kFlashSide; c < kFlashAlong; c += kFlashSide)
          s.p[r][c] = r < own && key + c < this->seen(first + r)
                          ? this->dot(s.own[0][r], s.along[c], a.key_size) * this->scale
                          : F(-INFINITY);
      });
      team.each([&](int t) {
        if (t < kFlashOwn) advance(s, t);
      });
      team.each([&](int t) {
        this->load(t, s.along, kFlashAlong, along, a.value_size,
                   [&](int r) { return this->value_row(sample, head, key + r); });
      });
      team.each([&](int t) {
        FlashSums<F>& sums = registers.of(t);
        PIPEWRIGHT_UNROLL
        for (int c = 0; c < kFlashSums; ++c)
          sums.a[c] *= s.shrunk[t / kFlashSide];
        this->add_weighted(t, sums.a, s.p[t / kFlashSide], s.along, a.value_size);
      });
    }
    team.each([&](int t) {
      const int r = t / kFlashSide;
      if (r >= own) return;
      this->store(t, registers.of(t).a, F(1) / s.total[r], a.value_size, y + this->out_place(sample, head, first + r));
      if (t % kFlashSide == 0) log_sum[this->row_place(sample, head, first + r)] = s.largest[r] + std::log(s.total[r]);
    });
  }

 private:
  // Takes a row's scores of this tile into its m and l; they become e^(s - m').
  PIPEWRIGHT_BOTH static void advance(FlashShared<F>& s, int r) {
    F most = s.largest[r];
    for (int c = 0; c < kFlashAlong; ++c)
      most = larger(most, s.p[r][c]);
    // A row that has seen nothing yet stays as it is: -inf - -inf is no number.
    const bool none = most == F(-INFINITY);
    s.shrunk[r] = none ? F(1) : std::exp(s.largest[r] - most);
    F total = s.total[r] * s.shrunk[r];
    for (int c = 0; c < kFlashAlong; ++c) {
      s.p[r][c] = none ? F(0) : std::exp(s.p[r][c] - most);
      total += s.p[r][c];
    }
    s.largest[r] = most, s.total[r] = total;
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
  PIPEWRIGHT_TEAM void operator()(const T& team, std::int64_t row) const {
    const auto& a = flash.places;
    const std::int64_t batch = row / a.queries;
    const std::int64_t at = flash.out_place(batch / a.heads, batch % a.heads, row % a.queries);
    const F sum = row_sum(team, a.value_size, [&](std::int64_t j) { return F(y[at + j]) * F(dy[at + j]); });
    team.each([&](int t) {
      if (t == 0) sums[row] = sum;
    });
  }
};

// Gradients: p and ds of own rows against rows along, from q, k, v and dy that lie in shared memory. kQueries: own rows
// are queries, else keys.
template <class S, bool kQueries>
struct FlashGradient : Flash<S> {
  using F = Arithmetic<S>;
  std::int64_t tiles_of_head;
  const F *log_sum, *outputs;
  const S* dy;
  S *first_gradient, *second_gradient;  // dq; dk and dv

  template <class T, class Registers>
  PIPEWRIGHT_TEAM void operator()(const T& team, FlashShared<F>& s, Registers& registers, std::int64_t tile) const {
    const auto& a = this->places;
    const std::int64_t first = tile % tiles_of_head * kFlashOwn, batch = tile / tiles_of_head;
    const std::int64_t heads = kQueries ? a.heads : a.key_heads, sharers = kQueries ? 1 : a.sharers();
    const std::int64_t sample = batch / heads, own_head = batch % heads * sharers;
    const std::int64_t own = this->least(kFlashOwn, (kQueries ? a.queries : a.keys) - first);
    team.each([&](int t) {
      this->clear(registers.of(t));
      load_rows(t, s.own[0], s.own[1], kFlashOwn, own, sample, own_head, first, kQueries);
    });
    for (std::int64_t head = own_head; head < own_head + sharers; ++head)
      walk(team, s, registers, sample, head, first, own);
    team.each([&](int t) {
      const int r = t / kFlashSide;
      if (r >= own) return;
      FlashSums<F>& sums = registers.of(t);
      if constexpr (kQueries) {
        this->store(t, sums.a, F(1), a.key_size,
                    first_gradient + (sample * a.queries + first + r) * a.query_stride + own_head * a.key_size);
      } else {
        const std::int64_t key_head = own_head / sharers, row = sample * a.keys + first + r;
        this->store(t, sums.a, F(1), a.key_size, first_gradient + row * a.key_stride + key_head * a.key_size);
        this->store(t, sums.b, F(1), a.value_size, second_gradient + row * a.value_stride + key_head * a.value_size);
      }
    });
  }

 private:
  // Rows of queries with their dy, or of keys with their values. A null tile is left out.
  PIPEWRIGHT_BOTH void load_rows(int t, F (*factors)[kFlashHead + 1], F (*values)[kFlashHead + 1], int rows,
                                 std::int64_t count, std::int64_t sample, std::int64_t head, std::int64_t first,
                                 bool queries) const {
    const auto& a = this->places;
    if (factors != nullptr)
      this->load(t, factors, rows, count, a.key_size, [&](int r) {
        return queries ? this->query_row(sample, head, first + r) : this->key_row(sample, head, first + r);
      });
    if (values != nullptr)
      this->load(t, values, rows, count, a.value_size, [&](int r) {
        return queries ? dy + this->out_place(sample, head, first + r) : this->value_row(sample, head, first + r);
      });
  }

  template <class T, class Registers>
  PIPEWRIGHT_TEAM void walk(const T& team, FlashShared<F>& s, Registers& registers, std::int64_t sample,
                            std::int64_t head, std::int64_t first, std::int64_t own) const {
    const auto& a = this->places;
    const std::int64_t end = kQueries ? this->seen(first + own - 1) : a.queries;
    // Of own keys: earlier queries do not see them.
    const std::int64_t unseen = kQueries || !a.causal ? 0 : first - (a.keys - a.queries);
    const std::int64_t begin = unseen <= 0 ? 0 : unseen / kFlashAlong * kFlashAlong;
    for (std::int64_t at = begin; at < end; at += kFlashAlong) {
      const std::int64_t along = this->least(kFlashAlong, end - at);
      const auto each_pair = [&](int t, const auto& set) {
        const int r = t / kFlashSide;
        for (int c = t % kFlashSide; c < kFlashAlong; c += kFlashSide) {
          const std::int64_t query = kQueries ? first + r : at + c, key = kQueries ? at + c : first + r;
          set(r, c, r < own && c < along && key < this->seen(query), this->row_place(sample, head, query));
        }
      };
      team.each([&](int t) { load_rows(t, s.along, nullptr, kFlashAlong, along, sample, head, at, !kQueries); });
      team.each([&](int t) {
        each_pair(t, [&](int r, int c, bool visible, std::int64_t row) {
          s.p[r][c] =
              visible ? std::exp(this->dot(s.own[0][r], s.along[c], a.key_size) * this->scale - log_sum[row]) : F(0);
        });
      });
      team.each([&](int t) { load_rows(t, nullptr, s.along, kFlashAlong, along, sample, head, at, !kQueries); });
      team.each([&](int t) {
        each_pair(t, [&](int r, int c, bool visible, std::int64_t row) {
          const F dp = this->dot(s.own[1][r], s.along[c], a.value_size);
          s.ds[r][c] = visible ? s.p[r][c] * (dp - outputs[row]) * this->scale : F(0);
        });
        if constexpr (!kQueries) this->add_weighted(t, registers.of(t).b, s.p[t / kFlashSide], s.along, a.value_size);
      });
      team.each([&](int t) { load_rows(t, s.along, nullptr, kFlashAlong, along, sample, head, at, !kQueries); });
      team.each([&](int t) { this->add_weighted(t, registers.of(t).a, s.ds[t / kFlashSide], s.along, a.key_size); });
    }
  }
};

inline std::int64_t flash_tiles(std::int64_t rows) {
  return (rows + kFlashOwn - 1) / kFlashOwn;
}
template <class Grid, class S>
Flash<S> flash_of(const Grid& grid, const GpuAttentionShape& shape, const S* q, const S* k, const S* v) {
  using F = Arithmetic<S>;
  return {AttentionPlaces{shape}, 1 / std::sqrt(static_cast<F>(shape.key_size)), grid.factors_in_tf32(), q, k, v};
}

// As `attention`, but for what is kept: log_sum {samples, heads, queries}. key_size and value_size at most kFlashHead.
template <class Grid, class S>
void flash_attention(const Grid& grid, const GpuAttentionShape& shape, std::int64_t samples, const S* q, const S* k,
                     const S* v, S* y, Arithmetic<S>* log_sum) {
  using F = Arithmetic<S>;
  const std::int64_t tiles = flash_tiles(shape.queries);
  grid.template tiles<FlashShared<F>, FlashSums<F>>("flash_attention", samples * shape.heads * tiles,
                                                    FlashForward<S>{flash_of(grid, shape, q, k, v), tiles, y, log_sum});
}

// workspace: samples * heads * queries values. Null gradients are left out; those of k and v are asked for together.
template <class Grid, class S>
void flash_attention_gradient(const Grid& grid, const GpuAttentionShape& shape, std::int64_t samples, const S* q,
                              const S* k, const S* v, const S* y, const Arithmetic<S>* log_sum, const S* dy, S* dq,
                              S* dk, S* dv, Arithmetic<S>* workspace) {
  using F = Arithmetic<S>;
  const Flash<S> flash = flash_of(grid, shape, q, k, v);
  grid.rows("flash_attention_gradient (outputs)", samples * shape.heads * shape.queries, shape.value_size,
            FlashOutputs<S>{flash, y, dy, workspace});
  const std::int64_t query_tiles = flash_tiles(shape.queries), key_tiles = flash_tiles(shape.keys);
  if (dq != nullptr)
    grid.template tiles<FlashShared<F>, FlashSums<F>>(
        "flash_attention_gradient (q)", samples * shape.heads * query_tiles,
        FlashGradient<S, true>{flash, query_tiles, log_sum, workspace, dy, dq, nullptr});
  if (dk != nullptr && dv != nullptr)
    grid.template tiles<FlashShared<F>, FlashSums<F>>(
        "flash_attention_gradient (k, v)", samples * shape.key_heads * key_tiles,
        FlashGradient<S, false>{flash, key_tiles, log_sum, workspace, dy, dk, dv});
}

}  // namespace pipewright::grid_kernels
