// Kernels over single values: fills, sums of tensors, activations, order. Semantics of
// runtime/backends/cpu_kernels.hpp. S: the stored type; arithmetic is that of storage.hpp, every result is rounded
// once.
#pragma once

#include "kernels/functions.hpp"
#include "kernels/storage.hpp"

namespace pipewright::kernels::grid_kernels {

// y[i] = f(x[0][i], x[1][i], ...), one or two of them.
template <class T, class S, std::size_t kInputs, class Function>
struct MappedValue {
  Function f;
  T* y;
  const S* x[kInputs];
  PIPEWRIGHT_BOTH void operator()(I i) const {
    using F = Arithmetic<S>;
    if constexpr (kInputs == 1)
      y[i] = T(f(F(x[0][i])));
    else
      y[i] = T(f(F(x[0][i]), F(x[1][i])));
  }
};
template <class Grid, class T, class Function, class S>
void map(const Grid& grid, const char* name, I n, T* y, const Function& f, const S* x) {
  grid.values(name, n, MappedValue<T, S, 1, Function>{f, y, {x}});
}
template <class Grid, class T, class Function, class S>
void map(const Grid& grid, const char* name, I n, T* y, const Function& f, const S* a, const S* b) {
  grid.values(name, n, MappedValue<T, S, 2, Function>{f, y, {a, b}});
}

template <class S>
struct FillValue {
  Arithmetic<S> value;
  S* y;
  PIPEWRIGHT_BOTH void operator()(I i) const { y[i] = S(value); }
};
template <class Grid, class S>
void fill(const Grid& grid, I n, Arithmetic<S> value, S* y) {
  grid.values("fill", n, FillValue<S>{value, y});
}

// From one stored type to another: the compute copy of fp32 weights.
struct Same {
  template <class F>
  PIPEWRIGHT_BOTH F operator()(F x) const {
    return x;
  }
};
template <class Grid, class S, class T>
void convert(const Grid& grid, I n, const S* x, T* y) {
  map(grid, "convert", n, y, Same{}, x);
}

// y[i] normal with that standard deviation, mean 0: sqrt(-2 ln u) cos(2 pi v); it depends on seed and i alone.
//                                                                                                       [BoxMuller58]
template <class S>
struct NormalValue {
  using F = Arithmetic<S>;
  std::uint64_t seed;
  F deviation;
  S* y;
  PIPEWRIGHT_BOTH void operator()(I i) const {
    const auto at = static_cast<std::uint64_t>(i);
    const F u = unit_of(random_bits(seed, 2 * at)), v = unit_of(random_bits(seed, 2 * at + 1));
    y[i] = S(deviation * std::sqrt(F(-2) * std::log(u)) * std::cos(F(6.283185307179586) * v));
  }
};
template <class Grid, class S>
void normal(const Grid& grid, I n, std::uint64_t seed, Arithmetic<S> deviation, S* y) {
  grid.values("normal", n, NormalValue<S>{seed, deviation, y});
}

// Bit for bit; done by SMs, not by the copy engines.
template <class S>
struct CopyValue {
  const S* x;
  S* y;
  PIPEWRIGHT_BOTH void operator()(I i) const { y[i] = x[i]; }
};
template <class Grid, class S>
void copy_values(const Grid& grid, I n, const S* x, S* y) {
  grid.values("copy", n, CopyValue<S>{x, y});
}

// y = terms[0] + terms[1] + ..., added in this order; y may be one of them. What an all-reduce between virtual devices
// is made of.
constexpr int kTermsPerSum = 64;
template <class S>
struct SumOfTerms {
  int count = 0;
  const S* term[kTermsPerSum] = {};
  S* y = nullptr;
  PIPEWRIGHT_BOTH void operator()(I i) const {
    Arithmetic<S> sum = term[0][i];
    for (int t = 1; t < count; ++t)
      sum += term[t][i];
    y[i] = S(sum);
  }
};
// At most kTermsPerSum of them; `terms` is the host's.
template <class Grid, class S>
void sum_of_terms(const Grid& grid, I n, const S* const* terms, int count, S* y) {
  SumOfTerms<S> body;
  body.count = count, body.y = y;
  for (int t = 0; t < count; ++t)
    body.term[t] = terms[t];
  grid.values("sum_of_terms", n, body);
}

template <class F>
struct Scaled {
  F factor;
  PIPEWRIGHT_BOTH F operator()(F x) const { return x * factor; }
};
// y *= factor.
template <class Grid, class S>
void scale(const Grid& grid, I n, Arithmetic<S> factor, S* y) {
  map(grid, "scale", n, y, Scaled<Arithmetic<S>>{factor}, static_cast<const S*>(y));
}

template <class Grid, class S>
void add(const Grid& grid, I n, const S* a, const S* b, S* y) {
  map(grid, "add", n, y, Add{}, a, b);
}

struct Multiply {
  template <class F>
  PIPEWRIGHT_BOTH F operator()(F a, F b) const {
    return a * b;
  }
};
template <class Grid, class S>
void multiply(const Grid& grid, I n, const S* a, const S* b, S* y) {
  map(grid, "multiply", n, y, Multiply{}, a, b);
}

// y {rows, features} = x + bias, + residual unless that is null; y may be x or residual.
template <class S>
struct BiasValue {
  I features;
  const S *x, *bias, *residual;
  S* y;
  PIPEWRIGHT_BOTH void operator()(I i) const {
    const Arithmetic<S> value = x[i] + bias[i % features];
    y[i] = S(residual == nullptr ? value : value + residual[i]);
  }
};
template <class Grid, class S>
void add_bias(const Grid& grid, I rows, I features, const S* x, const S* bias, const S* residual, S* y) {
  grid.values("add_bias", rows * features, BiasValue<S>{features, x, bias, residual, y});
}

struct Activated {
  GpuFunction function;
  template <class F>
  PIPEWRIGHT_BOTH F operator()(F x) const {
    return value_of(function, x);
  }
};
template <class Grid, class S>
void activation(const Grid& grid, GpuFunction function, I n, const S* x, S* y) {
  map(grid, "activation", n, y, Activated{function}, x);
}
struct ActivatedSlope {
  GpuFunction function;
  template <class F>
  PIPEWRIGHT_BOTH F operator()(F kept, F d_out) const {
    return d_out * slope_of(function, kept);
  }
};
template <class Grid, class S>
void activation_input_gradient(const Grid& grid, GpuFunction function, I n, const S* kept, const S* dy, S* dx) {
  map(grid, "activation_input_gradient", n, dx, ActivatedSlope{function}, kept, dy);
}

// x {rows, 2 features}: y = f(its first half) * its second half.
template <class S>
struct GatedValue {
  GpuFunction function;
  I features;
  const S* x;
  S* y;
  PIPEWRIGHT_BOTH void operator()(I i) const {
    const I gate = i / features * features + i;  // 2 r features + column
    y[i] = S(value_of(function, Arithmetic<S>(x[gate])) * x[gate + features]);
  }
};
template <class Grid, class S>
void gated(const Grid& grid, GpuFunction function, I rows, I features, const S* x, S* y) {
  grid.values("gated", rows * features, GatedValue<S>{function, features, x, y});
}
template <class S>
struct GatedGradientValue {
  GpuFunction function;
  I features;
  const S *x, *dy;
  S* dx;
  PIPEWRIGHT_BOTH void operator()(I i) const {
    using F = Arithmetic<S>;
    const I gate = i / features * features + i;
    const F in = x[gate], value = x[gate + features], d_out = dy[i];
    dx[gate] = S(d_out * value * slope_at(function, in));
    dx[gate + features] = S(d_out * value_of(function, in));
  }
};
template <class Grid, class S>
void gated_input_gradient(const Grid& grid, GpuFunction function, I rows, I features, const S* x, const S* dy, S* dx) {
  grid.values("gated_input_gradient", rows * features, GatedGradientValue<S>{function, features, x, dy, dx});
}

// y {columns, rows} = x {rows, columns} transposed, `matrices` times. Writes are consecutive, reads are not.
template <class S>
struct TransposedValue {
  I rows, columns;
  const S* x;
  S* y;
  PIPEWRIGHT_BOTH void operator()(I i) const {
    const I matrix = i / (rows * columns), at = i - matrix * rows * columns;
    y[i] = x[matrix * rows * columns + at % rows * columns + at / rows];
  }
};
template <class Grid, class S>
void transpose(const Grid& grid, I matrices, I rows, I columns, const S* x, S* y) {
  grid.values("transpose", matrices * rows * columns, TransposedValue<S>{rows, columns, x, y});
}

// Copies `columns` values of each row; strides count values.
template <class S>
struct RowValue {
  I columns, x_stride, y_stride;
  const S* x;
  S* y;
  PIPEWRIGHT_BOTH void operator()(I i) const {
    const I r = i / columns, j = i - r * columns;
    y[r * y_stride + j] = x[r * x_stride + j];
  }
};
template <class Grid, class S>
void copy_rows(const Grid& grid, I rows, I columns, const S* x, I x_stride, S* y, I y_stride) {
  grid.values("copy_rows", rows * columns, RowValue<S>{columns, x_stride, y_stride, x, y});
}

}  // namespace pipewright::kernels::grid_kernels
