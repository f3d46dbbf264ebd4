// Kernels over single values: fills, sums of tensors, activations, order. Semantics of
// runtime/backends/cpu_kernels.hpp. S: the stored type; arithmetic is that of storage.hpp, every result is rounded
// once.
#pragma once

#include <numeric>

#include "kernels/columns.hpp"
#include "kernels/functions.hpp"
#include "kernels/pieces.hpp"

namespace pipewright::grid_kernels {

template <class S>
struct FillValue {
  Arithmetic<S> value;
  S* y;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    Values<Arithmetic<S>, W> values;
    PIPEWRIGHT_UNROLL
    for (int j = 0; j < W; ++j)
      values.of[j] = value;
    put<W>(y, i, values);
  }
};
template <class Grid, class S>
void fill(const Grid& grid, std::int64_t n, Arithmetic<S> value, S* y) {
  by_pieces<kPerPiece<S>>(grid, "fill", n, n, FillValue<S>{value, y}, y);
}

// From one stored type to another: the compute copy of fp32 weights.
template <class S, class T>
struct StoredValue {
  const S* x;
  T* y;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    put<W>(y, i, take<W>(x, i));
  }
};
template <class Grid, class S, class T>
void convert(const Grid& grid, std::int64_t n, const S* x, T* y) {
  constexpr int kWidth = sizeof(S) > sizeof(T) ? kPerPiece<S> : kPerPiece<T>;
  by_pieces<kWidth>(grid, "convert", n, n, StoredValue<S, T>{x, y}, x, y);
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
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    move<W>(y, i, x, i);
  }
};
// On SMs, beside the copy engines.
template <class Grid, class S>
void copy_values(const Grid& grid, std::int64_t n, const S* x, S* y) {
  by_pieces<kPerPiece<S>>(grid, "copy", n, n, CopyValue<S>{x, y}, x, y);
}

// y = a + factor b: STREAM's triad.                                                                     [McCalpin95]
template <class S>
struct TriadValue {
  const S *a, *b;
  Arithmetic<S> factor;
  S* y;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    using F = Arithmetic<S>;
    put<W>(y, i, each<W>([&](F first, F second) { return first + factor * second; }, take<W>(a, i), take<W>(b, i)));
  }
};
template <class Grid, class S>
void triad(const Grid& grid, std::int64_t n, const S* a, const S* b, Arithmetic<S> factor, S* y) {
  by_pieces<kPerPiece<S>>(grid, "triad", n, n, TriadValue<S>{a, b, factor, y}, a, b, y);
}

// y = terms[0] + terms[1] + ..., added in this order; y may be one of them. What an all-reduce between virtual devices
// is made of.
constexpr int kTermsPerSum = 64;
template <class S>
struct SumOfTerms {
  int count = 0;
  const S* term[kTermsPerSum] = {};
  S* y = nullptr;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    Values<Arithmetic<S>, W> sum = take<W>(term[0], i);
    for (int t = 1; t < count; ++t)
      sum = each<W>(Add{}, sum, take<W>(term[t], i));
    put<W>(y, i, sum);
  }
};
// At most kTermsPerSum of them.
template <class Grid, class S>
void sum_of_terms(const Grid& grid, std::int64_t n, const S* const* terms, int count, S* y) {
  SumOfTerms<S> body;
  body.count = count, body.y = y;
  std::uintptr_t begins = 0;
  for (int t = 0; t < count; ++t) {
    body.term[t] = terms[t];
    begins |= reinterpret_cast<std::uintptr_t>(terms[t]);
  }
  by_pieces<kPerPiece<S>>(grid, "sum_of_terms", n, n, body, y, reinterpret_cast<const void*>(begins));
}

// y *= factor.
template <class S>
struct ScaledValue {
  Arithmetic<S> factor;
  S* y;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    put<W>(y, i, each<W>([&](Arithmetic<S> value) { return value * factor; }, take<W>(y, i)));
  }
};
template <class Grid, class S>
void scale(const Grid& grid, std::int64_t n, Arithmetic<S> factor, S* y) {
  by_pieces<kPerPiece<S>>(grid, "scale", n, n, ScaledValue<S>{factor, y}, y);
}

template <class S>
struct AddValue {
  const S *a, *b;
  S* y;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    put<W>(y, i, each<W>(Add{}, take<W>(a, i), take<W>(b, i)));
  }
};
template <class Grid, class S>
void add(const Grid& grid, std::int64_t n, const S* a, const S* b, S* y) {
  by_pieces<kPerPiece<S>>(grid, "add", n, n, AddValue<S>{a, b, y}, a, b, y);
}

template <class S>
struct MultiplyValue {
  const S *a, *b;
  S* y;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    put<W>(y, i,
           each<W>([](Arithmetic<S> first, Arithmetic<S> second) { return first * second; }, take<W>(a, i),
                   take<W>(b, i)));
  }
};
template <class Grid, class S>
void multiply(const Grid& grid, std::int64_t n, const S* a, const S* b, S* y) {
  by_pieces<kPerPiece<S>>(grid, "multiply", n, n, MultiplyValue<S>{a, b, y}, a, b, y);
}

// y {rows, features} = x + bias, + residual unless that is null; y may be x or residual.
template <class S>
struct BiasValue {
  std::int64_t features;
  const S *x, *bias, *residual;
  S* y;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    const auto value = each<W>(Add{}, take<W>(x, i), take<W>(bias, i % features));
    put<W>(y, i, residual == nullptr ? value : each<W>(Add{}, value, take<W>(residual, i)));
  }
};
template <class Grid, class S>
void add_bias(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x, const S* bias, const S* residual,
              S* y) {
  by_pieces<kPerPiece<S>>(grid, "add_bias", rows * features, features, BiasValue<S>{features, x, bias, residual, y}, x,
                          bias, residual, y);
}

template <class S>
struct ActivationValue {
  GpuFunction function;
  const S* x;
  S* y;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    with_function(function, [&](auto f) {
      put<W>(y, i, each<W>([](Arithmetic<S> in) { return value_of(decltype(f)::value, in); }, take<W>(x, i)));
    });
  }
};
template <class Grid, class S>
void activation(const Grid& grid, GpuFunction function, std::int64_t n, const S* x, S* y) {
  by_pieces<kPerPiece<S>>(grid, "activation", n, n, ActivationValue<S>{function, x, y}, x, y);
}

template <class S>
struct ActivationGradientValue {
  GpuFunction function;
  const S *kept, *dy;
  S* dx;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    using F = Arithmetic<S>;
    with_function(function, [&](auto f) {
      put<W>(dx, i,
             each<W>([](F of, F d) { return d * slope_of(decltype(f)::value, of); }, take<W>(kept, i), take<W>(dy, i)));
    });
  }
};
template <class Grid, class S>
void activation_input_gradient(const Grid& grid, GpuFunction function, std::int64_t n, const S* kept, const S* dy,
                               S* dx) {
  by_pieces<kPerPiece<S>>(grid, "activation_input_gradient", n, n, ActivationGradientValue<S>{function, kept, dy, dx},
                          kept, dy, dx);
}

template <class S>
struct GatedValue {
  GpuFunction function;
  std::int64_t features;
  const S* x;
  S* y;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    using F = Arithmetic<S>;
    const std::int64_t r = i / features, gate = r * features + i;  // 2 r features + column
    with_function(function, [&](auto f) {
      put<W>(y, i,
             each<W>([](F in, F value) { return value_of(decltype(f)::value, in) * value; }, take<W>(x, gate),
                     take<W>(x, gate + features)));
    });
  }
};
template <class Grid, class S>
void gated(const Grid& grid, GpuFunction function, std::int64_t rows, std::int64_t features, const S* x, S* y) {
  by_pieces<kPerPiece<S>>(grid, "gated", rows * features, features, GatedValue<S>{function, features, x, y}, x, y);
}

template <class S>
struct GatedGradientValue {
  GpuFunction function;
  std::int64_t features;
  const S *x, *dy;
  S* dx;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    using F = Arithmetic<S>;
    const std::int64_t r = i / features, gate = r * features + i;
    const auto in = take<W>(x, gate), value = take<W>(x, gate + features), d_out = take<W>(dy, i);
    with_function(function, [&](auto f) {
      constexpr GpuFunction known = decltype(f)::value;
      put<W>(dx, gate, each<W>([](F d, F v, F g) { return d * v * slope_at(known, g); }, d_out, value, in));
      put<W>(dx, gate + features, each<W>([](F d, F g) { return d * value_of(known, g); }, d_out, in));
    });
  }
};
template <class Grid, class S>
void gated_input_gradient(const Grid& grid, GpuFunction function, std::int64_t rows, std::int64_t features, const S* x,
                          const S* dy, S* dx) {
  by_pieces<kPerPiece<S>>(grid, "gated_input_gradient", rows * features, features,
                          GatedGradientValue<S>{function, features, x, dy, dx}, x, dy, dx);
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
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    const std::int64_t place = i / size, token = place % tokens, head = place / tokens % heads;
    const std::int64_t sample = place / tokens / heads;
    move<W>(y, i, x, ((sample * tokens + token) * heads + head) * size + i % size);
  }
};
template <class Grid, class S>
void transpose_heads(const Grid& grid, std::int64_t samples, std::int64_t tokens, std::int64_t heads, std::int64_t size,
                     const S* x, S* y) {
  by_pieces<kPerPiece<S>>(grid, "transpose_heads", samples * tokens * heads * size, size,
                          HeadValue<S>{tokens, heads, size, x, y}, x, y);
}

// Copies `columns` values of each row; strides count values.
template <class S>
struct RowValue {
  std::int64_t columns, x_stride, y_stride;
  const S* x;
  S* y;
  template <int W>
  PIPEWRIGHT_BOTH void at(std::int64_t i) const {
    const std::int64_t r = i / columns, j = i - r * columns;
    move<W>(y, r * y_stride + j, x, r * x_stride + j);
  }
};
template <class Grid, class S>
void copy_rows(const Grid& grid, std::int64_t rows, std::int64_t columns, const S* x, std::int64_t x_stride, S* y,
               std::int64_t y_stride) {
  by_pieces<kPerPiece<S>>(grid, "copy_rows", rows * columns, std::gcd(columns, std::gcd(x_stride, y_stride)),
                          RowValue<S>{columns, x_stride, y_stride, x, y}, x, y);
}

}  // namespace pipewright::grid_kernels
