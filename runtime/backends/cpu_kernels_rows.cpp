#include "runtime/backends/cpu_kernels_lanes.hpp"

namespace pipewright::runtime::cpu_kernels {

namespace {

template <class S>
void copy(std::int64_t n, const S* x, S* y) {
  std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(S));
}

template <class S>
void add_to(std::int64_t n, const S* x, S* sum) {
  PIPEWRIGHT_ELEMENTWISE
  for (std::int64_t j = 0; j < n; ++j)
    sum[j] += x[j];
}

}  // namespace

// ---- tables ---------------------------------------------------------------------------------------------------------

template <class S>
void embedding(std::int64_t rows, std::int64_t features, const std::int64_t* index, const S* table, S* y) {
  for (std::int64_t r = 0; r < rows; ++r)
    copy(features, table + index[r] * features, y + r * features);
}

template <class S>
void embedding_weight_gradient(std::int64_t rows, std::int64_t features, const std::int64_t* index, const S* dy,
                               S* d_table) {
  for (std::int64_t r = 0; r < rows; ++r)
    add_to(features, dy + r * features, d_table + index[r] * features);
}

template <class S>
void learned_table(std::int64_t samples, std::int64_t values, const S* x, const S* table, S* y) {
  for (std::int64_t s = 0; s < samples; ++s)
    add(values, x + s * values, table, y + s * values);
}

template <class S>
void learned_table_weight_gradient(std::int64_t samples, std::int64_t values, const S* dy, S* d_table) {
  for (std::int64_t s = 0; s < samples; ++s)
    add_to(values, dy + s * values, d_table);
}

// ---- norms ----------------------------------------------------------------------------------------------------------

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias, variance over `features` values           [Ba16] eq. 4
template <class S>
void layer_norm(std::int64_t rows, std::int64_t features, const S* x, const S* weight, const S* bias, S* y,
                S* statistics) {
  const auto n = static_cast<S>(features);
  for (std::int64_t r = 0; r < rows; ++r, x += features, y += features) {
    const S mean = sum(features, x) / n;
    const S inverse = S(1) / std::sqrt(sum_of_squares(features, x, mean) / n + S(kNormEpsilon));
    statistics[2 * r] = mean, statistics[2 * r + 1] = inverse;
    if (weight != nullptr && bias != nullptr) PIPEWRIGHT_ELEMENTWISE
    for (std::int64_t j = 0; j < features; ++j)
      y[j] = (x[j] - mean) * inverse * weight[j] + bias[j];
    else if (weight != nullptr) PIPEWRIGHT_ELEMENTWISE for (std::int64_t j = 0; j < features; ++j) y[j] =
        (x[j] - mean) * inverse * weight[j];
    else PIPEWRIGHT_ELEMENTWISE for (std::int64_t j = 0; j < features; ++j) y[j] = (x[j] - mean) * inverse;
  }
}

namespace {

// Sums over a row of g = dy * weight, and of g * (x - mean).
template <class S>
struct GradientSums {
  S plain, with_x;
};
template <class S>
GradientSums<S> gradient_sums(std::int64_t n, const S* x, S mean, const S* weight, const S* dy) {
  Lanes<S> plain, with_x;
  std::int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    Lanes<S> g = Lanes<S>::from(dy + j);
    if (weight != nullptr) g.each([](auto a, auto b) { return a * b; }, Lanes<S>::from(weight + j));
    plain.each([](auto total, auto a) { return total + a; }, g);
    with_x.each([mean](auto total, auto a, auto value) { return total + a * (value - mean); }, g,
                Lanes<S>::from(x + j));
  }
  GradientSums<S> out = {plain.folded(), with_x.folded()};
  for (; j < n; ++j) {
    const S one = weight != nullptr ? dy[j] * weight[j] : dy[j];
    out.plain += one;
    out.with_x += one * (x[j] - mean);
  }
  return out;
}

// dx = inverse * (g - a - (x - mean) * b)
template <class S>
void norm_gradient_row(std::int64_t n, const S* x, S mean, S inverse, S a, S b, const S* weight, const S* dy, S* dx) {
  if (weight != nullptr) PIPEWRIGHT_ELEMENTWISE
  for (std::int64_t j = 0; j < n; ++j)
    dx[j] = inverse * (dy[j] * weight[j] - a - (x[j] - mean) * b);
  else PIPEWRIGHT_ELEMENTWISE for (std::int64_t j = 0; j < n; ++j) dx[j] = inverse * (dy[j] - a - (x[j] - mean) * b);
}

}  // namespace

// With g = dy * weight and z = (x - mean) * inverse: dx = inverse * (g - mean(g) - z mean(g z)).
template <class S>
void layer_norm_input_gradient(std::int64_t rows, std::int64_t features, const S* x, const S* statistics,
                               const S* weight, const S* dy, S* dx) {
  const auto n = static_cast<S>(features);
  for (std::int64_t r = 0; r < rows; ++r, x += features, dy += features, dx += features) {
    const S mean = statistics[2 * r], inverse = statistics[2 * r + 1];
    const GradientSums<S> sums = gradient_sums(features, x, mean, weight, dy);
    norm_gradient_row(features, x, mean, inverse, sums.plain / n, sums.with_x / n * inverse * inverse, weight, dy, dx);
  }
}

template <class S>
void layer_norm_weight_gradient(std::int64_t rows, std::int64_t features, const S* x, const S* statistics, const S* dy,
                                S* d_weight, S* d_bias) {
  for (std::int64_t r = 0; r < rows; ++r, x += features, dy += features) {
    const S mean = statistics[2 * r], inverse = statistics[2 * r + 1];
    PIPEWRIGHT_ELEMENTWISE
    for (std::int64_t j = 0; j < features; ++j)
      d_weight[j] += dy[j] * ((x[j] - mean) * inverse);
    if (d_bias != nullptr) add_to(features, dy, d_bias);
  }
}

template <class S>
void rms_norm(std::int64_t rows, std::int64_t features, const S* x, const S* weight, S* y, S* statistics) {
  for (std::int64_t r = 0; r < rows; ++r, x += features, y += features) {
    const S mean_square = sum_of_squares(features, x, S(0)) / static_cast<S>(features);
    const S inverse = S(1) / std::sqrt(mean_square + S(kNormEpsilon));
    statistics[r] = inverse;
    if (weight != nullptr) PIPEWRIGHT_ELEMENTWISE
    for (std::int64_t j = 0; j < features; ++j)
      y[j] = x[j] * inverse * weight[j];
    else PIPEWRIGHT_ELEMENTWISE for (std::int64_t j = 0; j < features; ++j) y[j] = x[j] * inverse;
  }
}

// As layer norm with mean 0 and without the mean of g.
template <class S>
void rms_norm_input_gradient(std::int64_t rows, std::int64_t features, const S* x, const S* statistics, const S* weight,
                             const S* dy, S* dx) {
  const auto n = static_cast<S>(features);
  for (std::int64_t r = 0; r < rows; ++r, x += features, dy += features, dx += features) {
    const S inverse = statistics[r];
    const S with_x = gradient_sums(features, x, S(0), weight, dy).with_x;
    norm_gradient_row(features, x, S(0), inverse, S(0), with_x / n * inverse * inverse, weight, dy, dx);
  }
}

template <class S>
void rms_norm_weight_gradient(std::int64_t rows, std::int64_t features, const S* x, const S* statistics, const S* dy,
                              S* d_weight) {
  for (std::int64_t r = 0; r < rows; ++r, x += features, dy += features)
    PIPEWRIGHT_ELEMENTWISE
  for (std::int64_t j = 0; j < features; ++j)
    d_weight[j] += dy[j] * (x[j] * statistics[r]);
}

// ---- softmax and loss -----------------------------------------------------------------------------------------------

template <class S>
void softmax(std::int64_t rows, std::int64_t features, const S* x, S* y) {
  for (std::int64_t r = 0; r < rows; ++r, x += features, y += features) {
    copy(features, x, y);
    softmax_in_place(features, S(1), y);
  }
}

// dx = y (dy - sum(y dy))
template <class S>
void softmax_input_gradient(std::int64_t rows, std::int64_t features, const S* y, const S* dy, S* dx) {
  for (std::int64_t r = 0; r < rows; ++r, y += features, dy += features, dx += features) {
    const S mean = dot(features, y, dy);
    PIPEWRIGHT_ELEMENTWISE
    for (std::int64_t j = 0; j < features; ++j)
      dx[j] = y[j] * (dy[j] - mean);
  }
}

template <class S>
void cross_entropy(std::int64_t samples, std::int64_t rows, std::int64_t classes, const S* x,
                   const std::int64_t* labels, S scale, S* losses, S* gradient) {
  for (std::int64_t s = 0; s < samples; ++s) {
    S loss = 0;
    for (std::int64_t r = 0; r < rows; ++r, x += classes, gradient += classes, ++labels) {
      copy(classes, x, gradient);
      loss += softmax_in_place(classes, S(1), gradient) - x[*labels];
      gradient[*labels] -= S(1);
      times(classes, scale, gradient);
    }
    losses[s] = loss / static_cast<S>(rows);
  }
}

// ---- activations ----------------------------------------------------------------------------------------------------

namespace {

constexpr double kInverseRootTwo = 0.70710678118654752440, kInverseRootTwoPi = 0.39894228040143267794;

template <class S>
S sigmoid(S x) {
  return S(1) / (S(1) + exponential(-x));
}

// value: f(x). slope: f'(x), of the kept value (y of relu, tanh and sigmoid).
template <Function>
struct Of;
template <>
struct Of<Function::Relu> {
  template <class S>
  static S value(S x) {
    return x < 0 ? S(0) : x;  // NaN stays NaN
  }
  template <class S>
  static S slope(S y) {
    return y > 0 ? S(1) : S(0);
  }
  template <class S>
  static S slope_at(S x) {
    return slope(x);
  }
};
template <>
struct Of<Function::Gelu> {
  template <class S>
  static S value(S x) {
    return S(0.5) * x * (S(1) + error_function(x * S(kInverseRootTwo)));
  }
  template <class S>
  static S slope(S x) {
    const S density = S(kInverseRootTwoPi) * exponential(S(-0.5) * x * x);
    return S(0.5) * (S(1) + error_function(x * S(kInverseRootTwo))) + x * density;
  }
  template <class S>
  static S slope_at(S x) {
    return slope(x);
  }
};
template <>
struct Of<Function::Silu> {
  template <class S>
  static S value(S x) {
    return x * sigmoid(x);
  }
  template <class S>
  static S slope(S x) {
    const S s = sigmoid(x);
    return s * (S(1) + x * (S(1) - s));
  }
  template <class S>
  static S slope_at(S x) {
    return slope(x);
  }
};
template <>
struct Of<Function::Tanh> {
  template <class S>
  static S value(S x) {
    return hyperbolic_tangent(x);
  }
  template <class S>
  static S slope(S y) {
    return S(1) - y * y;
  }
  template <class S>
  static S slope_at(S x) {
    return slope(value(x));
  }
};
template <>
struct Of<Function::Sigmoid> {
  template <class S>
  static S value(S x) {
    return sigmoid(x);
  }
  template <class S>
  static S slope(S y) {
    return y * (S(1) - y);
  }
  template <class S>
  static S slope_at(S x) {
    return slope(value(x));
  }
};

// visit(Of<function>{})
template <class Visit>
void with(Function function, const Visit& visit) {
  switch (function) {
    case Function::Relu: return visit(Of<Function::Relu>{});
    case Function::Gelu: return visit(Of<Function::Gelu>{});
    case Function::Silu: return visit(Of<Function::Silu>{});
    case Function::Tanh: return visit(Of<Function::Tanh>{});
    case Function::Sigmoid: return visit(Of<Function::Sigmoid>{});
  }
}

}  // namespace

template <class S>
void activation(Function function, std::int64_t n, const S* x, S* y) {
  with(function, [=](auto f) {
    PIPEWRIGHT_ELEMENTWISE
    for (std::int64_t j = 0; j < n; ++j)
      y[j] = f.value(x[j]);
  });
}

template <class S>
void activation_input_gradient(Function function, std::int64_t n, const S* kept, const S* dy, S* dx) {
  with(function, [=](auto f) {
    PIPEWRIGHT_ELEMENTWISE
    for (std::int64_t j = 0; j < n; ++j)
      dx[j] = dy[j] * f.slope(kept[j]);
  });
}

template <class S>
void gated(Function function, std::int64_t rows, std::int64_t features, const S* x, S* y) {
  with(function, [=](auto f) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const S* const gate = x + 2 * r * features;
      const S* const value = gate + features;
      S* const out = y + r * features;
      PIPEWRIGHT_ELEMENTWISE
      for (std::int64_t j = 0; j < features; ++j)
        out[j] = f.value(gate[j]) * value[j];
    }
  });
}

template <class S>
void gated_input_gradient(Function function, std::int64_t rows, std::int64_t features, const S* x, const S* dy, S* dx) {
  with(function, [=](auto f) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const S* const gate = x + 2 * r * features;
      const S* const value = gate + features;
      const S* const out = dy + r * features;
      S* const d_gate = dx + 2 * r * features;
      S* const d_value = d_gate + features;
      PIPEWRIGHT_ELEMENTWISE
      for (std::int64_t j = 0; j < features; ++j) {
        d_gate[j] = out[j] * value[j] * f.slope_at(gate[j]);
        d_value[j] = out[j] * f.value(gate[j]);
      }
    }
  });
}

template <class S>
void add(std::int64_t n, const S* a, const S* b, S* y) {
  PIPEWRIGHT_ELEMENTWISE
  for (std::int64_t j = 0; j < n; ++j)
    y[j] = a[j] + b[j];
}

template <class S>
void multiply(std::int64_t n, const S* a, const S* b, S* y) {
  PIPEWRIGHT_ELEMENTWISE
  for (std::int64_t j = 0; j < n; ++j)
    y[j] = a[j] * b[j];
}

// ---- windows and order ----------------------------------------------------------------------------------------------

namespace {

// The part of a window that lies inside its plane.
struct Window {
  std::int64_t top, bottom, left, right;
};
Window window_at(const PoolShape& p, std::int64_t oy, std::int64_t ox) {
  const auto least = [](std::int64_t a, std::int64_t b) { return a < b ? a : b; };
  const std::int64_t y = oy * p.stride - p.padding, x = ox * p.stride - p.padding;
  return {y < 0 ? 0 : y, least(y + p.kernel, p.height_in), x < 0 ? 0 : x, least(x + p.kernel, p.width_in)};
}

// visit(window, number of the output value, first input value of its plane), for all planes.
template <class Visit>
void for_windows(const PoolShape& p, std::int64_t samples, const Visit& visit) {
  std::int64_t out = 0;
  for (std::int64_t plane = 0; plane < samples * p.channels; ++plane)
    for (std::int64_t oy = 0; oy < p.height_out; ++oy)
      for (std::int64_t ox = 0; ox < p.width_out; ++ox, ++out)
        visit(window_at(p, oy, ox), out, plane * p.height_in * p.width_in);
}

std::int64_t values_in(const PoolShape& p, std::int64_t samples) {
  return samples * p.channels * p.height_in * p.width_in;
}

}  // namespace

template <class S>
void max_pool(const PoolShape& p, std::int64_t samples, const S* x, S* y, std::int32_t* position) {
  for_windows(p, samples, [&](const Window& w, std::int64_t out, std::int64_t plane) {
    std::int64_t best = w.top * p.width_in + w.left;
    for (std::int64_t i = w.top; i < w.bottom; ++i)
      for (std::int64_t j = w.left; j < w.right; ++j) {
        const S value = x[plane + i * p.width_in + j];
        if (value > x[plane + best] || value != value) best = i * p.width_in + j;  // a NaN wins
      }
    y[out] = x[plane + best];
    position[out] = static_cast<std::int32_t>(best);
  });
}

template <class S>
void max_pool_input_gradient(const PoolShape& p, std::int64_t samples, const std::int32_t* position, const S* dy,
                             S* dx) {
  set(values_in(p, samples), S(0), dx);
  for_windows(p, samples,
              [&](const Window&, std::int64_t out, std::int64_t plane) { dx[plane + position[out]] += dy[out]; });
}

template <class S>
void average_pool(const PoolShape& p, std::int64_t samples, const S* x, S* y) {
  for_windows(p, samples, [&](const Window& w, std::int64_t out, std::int64_t plane) {
    S total = 0;
    for (std::int64_t i = w.top; i < w.bottom; ++i)
      for (std::int64_t j = w.left; j < w.right; ++j)
        total += x[plane + i * p.width_in + j];
    y[out] = total / static_cast<S>((w.bottom - w.top) * (w.right - w.left));
  });
}

template <class S>
void average_pool_input_gradient(const PoolShape& p, std::int64_t samples, const S* dy, S* dx) {
  set(values_in(p, samples), S(0), dx);
  for_windows(p, samples, [&](const Window& w, std::int64_t out, std::int64_t plane) {
    const S share = dy[out] / static_cast<S>((w.bottom - w.top) * (w.right - w.left));
    for (std::int64_t i = w.top; i < w.bottom; ++i)
      for (std::int64_t j = w.left; j < w.right; ++j)
        dx[plane + i * p.width_in + j] += share;
  });
}

template <class S>
void global_average_pool(std::int64_t planes, std::int64_t plane, const S* x, S* y) {
  for (std::int64_t i = 0; i < planes; ++i)
    y[i] = sum(plane, x + i * plane) / static_cast<S>(plane);
}

template <class S>
void global_average_pool_input_gradient(std::int64_t planes, std::int64_t plane, const S* dy, S* dx) {
  for (std::int64_t i = 0; i < planes; ++i)
    set(plane, dy[i] / static_cast<S>(plane), dx + i * plane);
}

template <class S>
void transpose(std::int64_t matrices, std::int64_t rows, std::int64_t columns, const S* x, S* y) {
  for (std::int64_t m = 0; m < matrices; ++m, x += rows * columns, y += rows * columns)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        y[j * rows + i] = x[i * columns + j];
}

template <class S>
void copy_rows(std::int64_t rows, std::int64_t columns, const S* x, std::int64_t x_stride, S* y,
               std::int64_t y_stride) {
  for (std::int64_t r = 0; r < rows; ++r)
    copy(columns, x + r * x_stride, y + r * y_stride);
}

// ---- optimizers -----------------------------------------------------------------------------------------------------

template <class S>
void sgd(std::int64_t n, S rate, const S* w, const S* g, S* out) {
  PIPEWRIGHT_ELEMENTWISE
  for (std::int64_t j = 0; j < n; ++j)
    out[j] = w[j] - rate * g[j];
}

template <class S>
void momentum(std::int64_t n, S rate, S mu, const S* w, const S* g, S* out, S* v) {
  PIPEWRIGHT_ELEMENTWISE
  for (std::int64_t j = 0; j < n; ++j) {
    const S velocity = mu * v[j] + g[j];
    v[j] = velocity;
    out[j] = w[j] - rate * velocity;
  }
}

template <class S>
void rmsprop(std::int64_t n, S rate, S rho, S epsilon, const S* w, const S* g, S* out, S* v) {
  PIPEWRIGHT_ELEMENTWISE
  for (std::int64_t j = 0; j < n; ++j) {
    const S square = rho * v[j] + (S(1) - rho) * g[j] * g[j];
    v[j] = square;
    out[j] = w[j] - rate * g[j] / (std::sqrt(square) + epsilon);
  }
}

template <class S>
void adam(std::int64_t n, S rate, S beta1, S beta2, S epsilon, S correction1, S correction2, const S* w, const S* g,
          S* out, S* m, S* v) {
  PIPEWRIGHT_ELEMENTWISE
  for (std::int64_t j = 0; j < n; ++j) {
    const S mean = beta1 * m[j] + (S(1) - beta1) * g[j];
    const S square = beta2 * v[j] + (S(1) - beta2) * g[j] * g[j];
    m[j] = mean, v[j] = square;
    out[j] = w[j] - rate * (mean / correction1) / (std::sqrt(square / correction2) + epsilon);
  }
}

namespace {

// Where copy q of a token lies among the rows of experts.
std::int64_t row_of(const RowsOfExperts& a, std::int64_t q) {
  return q % a.experts * (a.tokens * a.active / a.experts) + q / a.experts;
}

}  // namespace

template <class S>
void dispatch(const RowsOfExperts& a, const S* x, S* rows) {
  for (std::int64_t q = 0; q < a.tokens * a.active; ++q) {
    const S* const from = x + q / a.active * a.features;
    S* const to = rows + row_of(a, q) * a.features;
    PIPEWRIGHT_ELEMENTWISE
    for (std::int64_t j = 0; j < a.features; ++j)
      to[j] = from[j];
  }
}

template <class S>
void dispatch_gradient(const RowsOfExperts& a, const S* d_rows, S* dx) {
  for (std::int64_t q = 0; q < a.tokens * a.active; ++q) {
    const S* const from = d_rows + row_of(a, q) * a.features;
    S* const to = dx + q / a.active * a.features;
    if (q % a.active == 0) set(a.features, S(0), to);
    PIPEWRIGHT_ELEMENTWISE
    for (std::int64_t j = 0; j < a.features; ++j)
      to[j] += from[j];
  }
}

template <class S>
void combine(const RowsOfExperts& a, const S* rows, const S* shares, S* y) {
  for (std::int64_t q = 0; q < a.tokens * a.active; ++q) {
    const S* const from = rows + row_of(a, q) * a.features;
    const S share = shares[q / a.active * a.experts + q % a.experts];
    S* const to = y + q / a.active * a.features;
    if (q % a.active == 0) set(a.features, S(0), to);
    PIPEWRIGHT_ELEMENTWISE
    for (std::int64_t j = 0; j < a.features; ++j)
      to[j] += share * from[j];
  }
}

template <class S>
void combine_gradient(const RowsOfExperts& a, const S* rows, const S* shares, const S* dy, S* d_rows, S* d_shares) {
  if (d_shares != nullptr) set(a.tokens * a.experts, S(0), d_shares);
  for (std::int64_t q = 0; q < a.tokens * a.active; ++q) {
    const std::int64_t row = row_of(a, q) * a.features, share = q / a.active * a.experts + q % a.experts;
    const S* const from = dy + q / a.active * a.features;
    if (d_shares != nullptr) d_shares[share] = dot(a.features, from, rows + row);
    if (d_rows == nullptr) continue;
    PIPEWRIGHT_ELEMENTWISE
    for (std::int64_t j = 0; j < a.features; ++j)
      d_rows[row + j] = shares[share] * from[j];
  }
}

#define PIPEWRIGHT_INSTANTIATE(S)                                                                                  \
  template void embedding(std::int64_t, std::int64_t, const std::int64_t*, const S*, S*);                          \
  template void embedding_weight_gradient(std::int64_t, std::int64_t, const std::int64_t*, const S*, S*);          \
  template void learned_table(std::int64_t, std::int64_t, const S*, const S*, S*);                                 \
  template void learned_table_weight_gradient(std::int64_t, std::int64_t, const S*, S*);                           \
  template void dispatch(const RowsOfExperts&, const S*, S*);                                                      \
  template void dispatch_gradient(const RowsOfExperts&, const S*, S*);                                             \
  template void combine(const RowsOfExperts&, const S*, const S*, S*);                                             \
  template void combine_gradient(const RowsOfExperts&, const S*, const S*, const S*, S*, S*);                      \
  template void layer_norm(std::int64_t, std::int64_t, const S*, const S*, const S*, S*, S*);                      \
  template void layer_norm_input_gradient(std::int64_t, std::int64_t, const S*, const S*, const S*, const S*, S*); \
  template void layer_norm_weight_gradient(std::int64_t, std::int64_t, const S*, const S*, const S*, S*, S*);      \
  template void rms_norm(std::int64_t, std::int64_t, const S*, const S*, S*, S*);                                  \
  template void rms_norm_input_gradient(std::int64_t, std::int64_t, const S*, const S*, const S*, const S*, S*);   \
  template void rms_norm_weight_gradient(std::int64_t, std::int64_t, const S*, const S*, const S*, S*);            \
  template void softmax(std::int64_t, std::int64_t, const S*, S*);                                                 \
  template void softmax_input_gradient(std::int64_t, std::int64_t, const S*, const S*, S*);                        \
  template void cross_entropy(std::int64_t, std::int64_t, std::int64_t, const S*, const std::int64_t*, S, S*, S*); \
  template void activation(Function, std::int64_t, const S*, S*);                                                  \
  template void activation_input_gradient(Function, std::int64_t, const S*, const S*, S*);                         \
  template void gated(Function, std::int64_t, std::int64_t, const S*, S*);                                         \
  template void gated_input_gradient(Function, std::int64_t, std::int64_t, const S*, const S*, S*);                \
  template void add(std::int64_t, const S*, const S*, S*);                                                         \
  template void multiply(std::int64_t, const S*, const S*, S*);                                                    \
  template void max_pool(const PoolShape&, std::int64_t, const S*, S*, std::int32_t*);                             \
  template void max_pool_input_gradient(const PoolShape&, std::int64_t, const std::int32_t*, const S*, S*);        \
  template void average_pool(const PoolShape&, std::int64_t, const S*, S*);                                        \
  template void average_pool_input_gradient(const PoolShape&, std::int64_t, const S*, S*);                         \
  template void global_average_pool(std::int64_t, std::int64_t, const S*, S*);                                     \
  template void global_average_pool_input_gradient(std::int64_t, std::int64_t, const S*, S*);                      \
  template void transpose(std::int64_t, std::int64_t, std::int64_t, const S*, S*);                                 \
  template void copy_rows(std::int64_t, std::int64_t, const S*, std::int64_t, S*, std::int64_t);                   \
  template void sgd(std::int64_t, S, const S*, const S*, S*);                                                      \
  template void momentum(std::int64_t, S, S, const S*, const S*, S*, S*);                                          \
  template void rmsprop(std::int64_t, S, S, S, const S*, const S*, S*, S*);                                        \
  template void adam(std::int64_t, S, S, S, S, S, S, const S*, const S*, S*, S*, S*);
PIPEWRIGHT_INSTANTIATE(float)
PIPEWRIGHT_INSTANTIATE(double)
#undef PIPEWRIGHT_INSTANTIATE

}  // namespace pipewright::runtime::cpu_kernels
