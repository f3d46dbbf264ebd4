// Kernels over single values: fills, sums of tensors, activations, order. Semantics of
// runtime/backends/cpu_kernels.hpp. S: the stored type; arithmetic is that of storage.hpp, every result is rounded
// once.
#pragma once

#include "kernels/columns.hpp"
#include "kernels/functions.hpp"
#include "kernels/pieces.hpp"
#include "kernels/storage.hpp"

namespace pipewright::grid_kernels {

template <class S>
struct FillValue {
  S value, *y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const { y[i] = value; }
};
template <class Grid, class S>
void fill(const Grid& grid, std::int64_t n, Arithmetic<S> value, S* y) {
  grid.values("fill", n, FillValue<S>{S(value), y});
}

// From one stored type to another: the compute copy of fp32 weights.
template <class S, class T>
struct StoredValue {
  const S* x;
  T* y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const { y[i] = T(x[i]); }
};
template <class Grid, class S, class T>
void convert(const Grid& grid, std::int64_t n, const S* x, T* y) {
  grid.values("convert", n, StoredValue<S, T>{x, y});
}

// y[i] uniform in (-bound, bound); it depends on seed and i alone.
template <class S>
struct UniformValue {
  std::uint64_t seed;
  Arithmetic<S> bound;
  S* y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    const float within = 2 * unit_of(random_bits(seed, static_cast<std::uint64_t>(i))) - 1;
    y[i] = S(bound * static_cast<Arithmetic<S>>(within));
  }
};
template <class Grid, class S>
void uniform(const Grid& grid, std::int64_t n, std::uint64_t seed, Arithmetic<S> bound, S* y) {
  grid.values("uniform", n, UniformValue<S>{seed, bound, y});
}

// y[i] normal with that standard deviation, mean 0: sqrt(-2 ln u) cos(2 pi v).                          [BoxMuller58]
template <class S>
struct NormalValue {
  using F = Arithmetic<S>;
  std::uint64_t seed;
  F deviation;
  S* y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    const auto at = static_cast<std::uint64_t>(i);
    const F u = unit_of(random_bits(seed, 2 * at)), v = unit_of(random_bits(seed, 2 * at + 1));
    y[i] = S(deviation * std::sqrt(F(-2) * std::log(u)) * std::cos(F(6.283185307179586) * v));
  }
};
template <class Grid, class S>
void normal(const Grid& grid, std::int64_t n, std::uint64_t seed, Arithmetic<S> deviation, S* y) {
  grid.values("normal", n, NormalValue<S>{seed, deviation, y});
}

template <class S>
struct CopyValue {
  const S* x;
  S* y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const { y[i] = x[i]; }
};
// On SMs, beside the copy engines: of whole 16-byte pieces where both blocks begin at one.
template <class Grid, class S>
void copy_values(const Grid& grid, std::int64_t n, const S* x, S* y) {
  constexpr std::int64_t kPerPiece = sizeof(Piece) / sizeof(S);
  const auto whole = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % sizeof(Piece) == 0; };
  if (n % kPerPiece == 0 && whole(x) && whole(y))
    grid.values("copy", n / kPerPiece,
                CopyValue<Piece>{reinterpret_cast<const Piece*>(x), reinterpret_cast<Piece*>(y)});
  else
    grid.values("copy", n, CopyValue<S>{x, y});
}

// y = a + factor b: STREAM's triad.                                                                     [McCalpin95]
template <class S>
struct TriadValue {
  const S *a, *b;
  Arithmetic<S> factor;
  S* y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const { y[i] = S(a[i] + factor * b[i]); }
};
template <class Grid, class S>
void triad(const Grid& grid, std::int64_t n, const S* a, const S* b, Arithmetic<S> factor, S* y) {
  grid.values("triad", n, TriadValue<S>{a, b, factor, y});
}

// y = terms[0] + terms[1] + ..., added in this order; y may be one of them. What an all-reduce between virtual devices
// is made of.
constexpr int kTermsPerSum = 64;
template <class S>
struct SumOfTerms {
  int count = 0;
  const S* term[kTermsPerSum] = {};
  S* y = nullptr;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    Arithmetic<S> sum = term[0][i];
    for (int t = 1; t < count; ++t)
      sum += term[t][i];
    y[i] = S(sum);
  }
};
// At most kTermsPerSum of them.
template <class Grid, class S>
void sum_of_terms(const Grid& grid, std::int64_t n, const S* const* terms, int count, S* y) {
  SumOfTerms<S> body;
  body.count = count, body.y = y;
  for (int t = 0; t < count; ++t)
    body.term[t] = terms[t];
  grid.values("sum_of_terms", n, body);
}

// y *= factor.
template <class S>
struct ScaledValue {
  Arithmetic<S> factor;
  S* y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const { y[i] = S(y[i] * factor); }
};
template <class Grid, class S>
void scale(const Grid& grid, std::int64_t n, Arithmetic<S> factor, S* y) {
  grid.values("scale", n, ScaledValue<S>{factor, y});
}

template <class S>
struct AddValue {
  const S *a, *b;
  S* y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const { y[i] = S(a[i] + b[i]); }
};
template <class Grid, class S>
void add(const Grid& grid, std::int64_t n, const S* a, const S* b, S* y) {
  grid.values("add", n, AddValue<S>{a, b, y});
}

template <class S>
struct MultiplyValue {
  const S *a, *b;
  S* y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const { y[i] = S(a[i] * b[i]); }
};
template <class Grid, class S>
void multiply(const Grid& grid, std::int64_t n, const S* a, const S* b, S* y) {
  grid.values("multiply", n, MultiplyValue<S>{a, b, y});
}

// y {rows, features} = x + bias, + residual unless that is null; y may be x or residual.
template <class S>
struct BiasValue {
  std::int64_t features;
  const S *x, *bias, *residual;
  S* y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    const Arithmetic<S> value = x[i] + bias[i % features];
    y[i] = S(residual == nullptr ? value : value + residual[i]);
  }
};
template <class Grid, class S>
void add_bias(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x, const S* bias, const S* residual,
              S* y) {
  grid.values("add_bias", rows * features, BiasValue<S>{features, x, bias, residual, y});
}

template <class S>
struct ActivationValue {
  GpuFunction function;
  const S* x;
  S* y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const { y[i] = S(value_of<Arithmetic<S>>(function, x[i])); }
};
template <class Grid, class S>
void activation(const Grid& grid, GpuFunction function, std::int64_t n, const S* x, S* y) {
  grid.values("activation", n, ActivationValue<S>{function, x, y});
}

template <class S>
struct ActivationGradientValue {
  GpuFunction function;
  const S *kept, *dy;
  S* dx;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    dx[i] = S(dy[i] * slope_of<Arithmetic<S>>(function, kept[i]));
  }
};
template <class Grid, class S>
void activation_input_gradient(const Grid& grid, GpuFunction function, std::int64_t n, const S* kept, const S* dy,
                               S* dx) {
  grid.values("activation_input_gradient", n, ActivationGradientValue<S>{function, kept, dy, dx});
}

template <class S>
struct GatedValue {
  GpuFunction function;
  std::int64_t features;
  const S* x;
  S* y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    const std::int64_t r = i / features, gate = r * features + i;  // 2 r features + column
    y[i] = S(value_of<Arithmetic<S>>(function, x[gate]) * x[gate + features]);
  }
};
template <class Grid, class S>
void gated(const Grid& grid, GpuFunction function, std::int64_t rows, std::int64_t features, const S* x, S* y) {
  grid.values("gated", rows * features, GatedValue<S>{function, features, x, y});
}

template <class S>
struct GatedGradientValue {
  GpuFunction function;
  std::int64_t features;
  const S *x, *dy;
  S* dx;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    const std::int64_t r = i / features, gate = r * features + i;
    const Arithmetic<S> in = x[gate], value = x[gate + features], d_out = dy[i];
    dx[gate] = S(d_out * value * slope_at(function, in));
    dx[gate + features] = S(d_out * value_of(function, in));
  }
};
template <class Grid, class S>
void gated_input_gradient(const Grid& grid, GpuFunction function, std::int64_t rows, std::int64_t features, const S* x,
                          const S* dy, S* dx) {
  grid.values("gated_input_gradient", rows * features, GatedGradientValue<S>{function, features, x, dy, dx});
}

// y {columns, rows} = x {rows, columns} transposed, `matrices` times. Writes are consecutive, reads are not.
template <class S>
struct TransposedValue {
  std::int64_t rows, columns;
  const S* x;
  S* y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    const std::int64_t matrix = i / (rows * columns), at = i - matrix * rows * columns;
    y[i] = x[matrix * rows * columns + at % rows * columns + at / rows];
  }
};
template <class Grid, class S>
void transpose(const Grid& grid, std::int64_t matrices, std::int64_t rows, std::int64_t columns, const S* x, S* y) {
  grid.values("transpose", matrices * rows * columns, TransposedValue<S>{rows, columns, x, y});
}

// y {samples, heads, tokens, size} = x {samples, tokens, heads, size}; with tokens and heads exchanged, its inverse.
template <class S>
struct HeadValue {
  std::int64_t tokens, heads, size;
  const S* x;
  S* y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    const std::int64_t place = i / size, token = place % tokens, head = place / tokens % heads;
    const std::int64_t sample = place / tokens / heads;
    y[i] = x[((sample * tokens + token) * heads + head) * size + i % size];
  }
};
template <class Grid, class S>
void transpose_heads(const Grid& grid, std::int64_t samples, std::int64_t tokens, std::int64_t heads, std::int64_t size,
                     const S* x, S* y) {
  grid.values("transpose_heads", samples * tokens * heads * size, HeadValue<S>{tokens, heads, size, x, y});
}

// Copies `columns` values of each row; strides count values.
template <class S>
struct RowValue {
  std::int64_t columns, x_stride, y_stride;
  const S* x;
  S* y;
  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    const std::int64_t r = i / columns, j = i - r * columns;
    y[r * y_stride + j] = x[r * x_stride + j];
  }
};
template <class Grid, class S>
void copy_rows(const Grid& grid, std::int64_t rows, std::int64_t columns, const S* x, std::int64_t x_stride, S* y,
               std::int64_t y_stride) {
  grid.values("copy_rows", rows * columns, RowValue<S>{columns, x_stride, y_stride, x, y});
}

}  // namespace pipewright::grid_kernels
