// Kernels over rows: norms, softmax, loss. Semantics, layouts and constants of runtime/backends/cpu_kernels.hpp; T is a
// Team of grid.hpp, S the stored type (storage.hpp); statistics, losses and gradients of weights are in the type of the
// arithmetic.
#pragma once

#include "kernels/columns.hpp"
#include "kernels/grid.hpp"
#include "kernels/kept_rows.hpp"

namespace pipewright::grid_kernels {

constexpr double kNormEpsilon = 1e-5;  // as the CPU's

// f(j) summed over j in [0, n) by all threads of a team: thread t takes t, t + size, ...
template <class T, class F>
PIPEWRIGHT_TEAM auto row_sum(const T& team, std::int64_t n, const F& f) {
  return team.sum([&](int t) {
    decltype(f(0)) total{};
    for (std::int64_t j = t; j < n; j += T::size())
      total = total + f(j);
    return total;
  });
}

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias                                               [Ba16] eq. 4
template <class S>
struct LayerNormRow {
  std::int64_t features;
  using F = Arithmetic<S>;
  const S *x, *weight, *bias;
  S* y;
  F* statistics;
  template <RowWay kWay, class T>
  PIPEWRIGHT_TEAM void row(const T& team, std::int64_t r) const {
    const S* const in[] = {x + r * features};
    S* const out = y + r * features;
    const F n = static_cast<F>(features);
    const S *const w = weight, *const b = bias;
    F mean = 0, inverse = 0;
    with_row<kWay>(team, features, in, w, b, [&](auto& row) {
      mean = row.sum([](const auto& v) { return v.of[0]; }) / n;
      const F squares = row.sum([&](const auto& v) { return (v.of[0] - mean) * (v.of[0] - mean); });
      inverse = F(1) / std::sqrt(squares / n + F(kNormEpsilon));
      row.each(out, [&](const auto& v) {
        const F z = (v.of[0] - mean) * inverse;
        return w == nullptr ? z : b == nullptr ? z * v.shared[0] : z * v.shared[0] + v.shared[1];
      });
    });
    team.each([&](int t) {
      if (t == 0) statistics[2 * r] = mean, statistics[2 * r + 1] = inverse;
    });
  }
};

// With g = dy * weight and z = (x - mean) * inverse: dx = inverse * (g - mean(g) - z mean(g z)). Of rms_norm, whose
// statistics are 1 / sqrt(mean square + epsilon) alone, mean and mean(g) are 0.
template <class S, bool kLayer>
struct NormGradientRow {
  using F = Arithmetic<S>;
  std::int64_t features;
  const S* x;
  const F* statistics;
  const S *weight, *dy;
  S* dx;
  template <RowWay kWay, class T>
  PIPEWRIGHT_TEAM void row(const T& team, std::int64_t r) const {
    const S *const in[] = {x + r * features, dy + r * features}, *const w = weight;
    S* const out = dx + r * features;
    const F mean = kLayer ? statistics[2 * r] : F(0), inverse = kLayer ? statistics[2 * r + 1] : statistics[r];
    const F n = static_cast<F>(features);
    with_row<kWay>(team, features, in, w, static_cast<const S*>(nullptr), [&](auto& row) {
      const auto g = [&](const auto& v) { return w == nullptr ? v.of[1] : v.of[1] * v.shared[0]; };
      const Two<F> sums = row.sum([&](const auto& v) { return Two<F>{g(v), g(v) * (v.of[0] - mean)}; });
      const F a = kLayer ? sums.a / n : F(0), b = sums.b / n * inverse * inverse;
      row.each(out, [&](const auto& v) { return inverse * (g(v) - a - (v.of[0] - mean) * b); });
    });
  }
};

template <class S>
struct RmsNormRow {
  using F = Arithmetic<S>;
  std::int64_t features;
  const S *x, *weight;
  S* y;
  F* statistics;
  template <RowWay kWay, class T>
  PIPEWRIGHT_TEAM void row(const T& team, std::int64_t r) const {
    const S *const in[] = {x + r * features}, *const w = weight;
    S* const out = y + r * features;
    F inverse = 0;
    with_row<kWay>(team, features, in, w, static_cast<const S*>(nullptr), [&](auto& row) {
      const F squares = row.sum([](const auto& v) { return v.of[0] * v.of[0]; });
      inverse = F(1) / std::sqrt(squares / static_cast<F>(features) + F(kNormEpsilon));
      row.each(out, [&](const auto& v) { return w == nullptr ? v.of[0] * inverse : v.of[0] * inverse * v.shared[0]; });
    });
    team.each([&](int t) {
      if (t == 0) statistics[r] = inverse;
    });
  }
};

// Which columns of a row are seen: all, or those before `end`.
struct AllSeen {
  PIPEWRIGHT_BOTH bool operator()(std::int64_t) const { return true; }
};
struct SeenBefore {
  std::int64_t end;
  PIPEWRIGHT_BOTH bool operator()(std::int64_t column) const { return column < end; }
};
// What a softmax is the shares of: e^(x[j] * scale - largest), 0 of columns that are not seen.
template <class F, class Seen>
struct SoftmaxPower {
  F scale, largest;
  Seen seen;
  template <class V>
  PIPEWRIGHT_BOTH F operator()(const V& v) const {
    return seen(v.column) ? of(v.of[0]) : F(0);
  }
  PIPEWRIGHT_BOTH F of(F x) const { return std::exp(x * scale - largest); }
};
// Of a row whose first value is in[0], and seen; scale > 0.
template <class Row, class Seen, class S>
PIPEWRIGHT_TEAM SoftmaxPower<Arithmetic<S>, Seen> softmax_power(Row& row, const Seen& seen, Arithmetic<S> scale,
                                                                const S* in) {
  const Arithmetic<S> some = in[0];
  return {scale, row.max(some, [&](const auto& v) { return seen(v.column) ? v.of[0] : some; }) * scale, seen};
}
// out[j] = e^(x[j] * scale) / sum for the columns seen, 0 behind; out may be in. Nothing in between is stored, so that
// every probability is rounded once.
template <RowWay kWay, class T, class Seen, class S>
PIPEWRIGHT_TEAM void softmax_row(const T& team, std::int64_t n, const Seen& seen, Arithmetic<S> scale, const S* in,
                                 S* out) {
  using F = Arithmetic<S>;
  const S* const none = nullptr;
  const S* const values[] = {in};
  with_row<kWay>(team, n, values, none, none, [&](auto& row) {
    const auto power = softmax_power(row, seen, scale, in);
    const F share = F(1) / row.sum_keeping(power);
    row.each_kept(out, power, [&](F p) { return p * share; });
  });
}

template <class S>
struct SoftmaxRow {
  std::int64_t features;
  const S* x;
  S* y;
  template <RowWay kWay, class T>
  PIPEWRIGHT_TEAM void row(const T& team, std::int64_t r) const {
    softmax_row<kWay>(team, features, AllSeen{}, Arithmetic<S>(1), x + r * features, y + r * features);
  }
};

// Scores of attention in place: row r is query r % queries, which sees the keys up to r % queries + keys - queries
// where the mask is causal.
template <class S>
struct AttentionSoftmaxRow {
  std::int64_t queries, keys;
  bool causal;
  Arithmetic<S> scale;
  S* p;
  template <RowWay kWay, class T>
  PIPEWRIGHT_TEAM void row(const T& team, std::int64_t r) const {
    const std::int64_t seen = causal ? r % queries + 1 + keys - queries : keys;
    softmax_row<kWay, T, SeenBefore, S>(team, keys, SeenBefore{seen}, scale, p + r * keys, p + r * keys);
  }
};

// dx = y (dy - sum(y dy)) * scale; dx may be dy.
template <class S>
struct SoftmaxGradientRow {
  std::int64_t features;
  Arithmetic<S> scale;
  const S *y, *dy;
  S* dx;
  template <RowWay kWay, class T>
  PIPEWRIGHT_TEAM void row(const T& team, std::int64_t r) const {
    const S *const in[] = {y + r * features, dy + r * features}, *const none = nullptr;
    S* const into = dx + r * features;
    with_row<kWay>(team, features, in, none, none, [&](auto& row) {
      const Arithmetic<S> mean = row.sum([](const auto& v) { return v.of[0] * v.of[1]; });
      row.each(into, [&](const auto& v) { return v.of[0] * (v.of[1] - mean) * scale; });
    });
  }
};

// One row of logits: its loss, and (softmax - 1 at the label) * scale.
template <class S>
struct CrossEntropyRow {
  using F = Arithmetic<S>;
  std::int64_t classes;
  const S* x;
  const std::int64_t* labels;
  F scale;
  F* row_losses;
  S* gradient;
  template <RowWay kWay, class T>
  PIPEWRIGHT_TEAM void row(const T& team, std::int64_t r) const {
    const S* const in = x + r * classes;
    S* const out = gradient + r * classes;
    const std::int64_t label = labels[r];
    const F of_label = in[label];  // before it is overwritten, should x be the gradient
    const S* const values[] = {in};
    const S* const none = nullptr;
    const F factor = scale;
    with_row<kWay>(team, classes, values, none, none, [&](auto& row) {
      const auto power = softmax_power(row, AllSeen{}, F(1), in);
      const F total = row.sum_keeping(power), share = F(1) / total;
      row.each_kept(out, power, [&](F p) { return p * share * factor; });
      team.each([&](int t) {  // over what was written there
        if (t != 0) return;
        row_losses[r] = power.largest + std::log(total) - of_label;
        out[label] = S((power.of(of_label) * share - F(1)) * factor);
      });
    });
  }
};

// mean[r] of a row's values: of a plane (global_average_pool), of a sample's losses.
template <class S>
struct MeanRow {
  using F = Arithmetic<S>;
  std::int64_t features;
  const S* x;
  S* mean;
  template <RowWay kWay, class T>
  PIPEWRIGHT_TEAM void row(const T& team, std::int64_t r) const {
    const S *const in[] = {x + r * features}, *const none = nullptr;
    F total = 0;
    with_row<kWay>(team, features, in, none, none,
                   [&](auto& row) { total = row.sum([](const auto& v) { return v.of[0]; }); });
    team.each([&](int t) {
      if (t == 0) mean[r] = S(total / static_cast<F>(features));
    });
  }
};

// ---- what they make up ----------------------------------------------------------------------------------------------

template <class Grid, class S>
void layer_norm(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x, const S* weight, const S* bias,
                S* y, Arithmetic<S>* statistics) {
  rows_by_pieces<S>(grid, "layer_norm", rows, features, LayerNormRow<S>{features, x, weight, bias, y, statistics}, x,
                    weight, bias, y);
}
template <class Grid, class S>
void layer_norm_input_gradient(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x,
                               const Arithmetic<S>* statistics, const S* weight, const S* dy, S* dx) {
  rows_by_pieces<S>(grid, "layer_norm_input_gradient", rows, features,
                    NormGradientRow<S, true>{features, x, statistics, weight, dy, dx}, x, dy, weight, dx);
}

template <class S, bool kLayer>
struct NormWeightTerm {
  using F = Arithmetic<S>;
  std::int64_t features;
  const S* x;
  const F* statistics;
  const S* dy;
  template <int W>
  PIPEWRIGHT_BOTH Values<F, W> at(std::int64_t r, std::int64_t j) const {
    const F mean = kLayer ? statistics[2 * r] : F(0), inverse = kLayer ? statistics[2 * r + 1] : statistics[r];
    const std::int64_t i = r * features + j;
    return each<W>([&](F value, F d) { return d * (kLayer ? (value - mean) * inverse : value * inverse); },
                   take<W>(x, i), take<W>(dy, i));
  }
};
// workspace: columns_workspace(rows, features) values. d_bias may be null.
template <class Grid, class S>
void layer_norm_weight_gradient(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x,
                                const Arithmetic<S>* statistics, const S* dy, Arithmetic<S>* d_weight,
                                Arithmetic<S>* d_bias, Arithmetic<S>* workspace) {
  add_column_sums<S>(grid, "layer_norm_weight_gradient", rows, features,
                     NormWeightTerm<S, true>{features, x, statistics, dy}, d_weight, workspace, x, dy);
  if (d_bias != nullptr) bias_gradient(grid, rows, features, dy, d_bias, workspace);
}

template <class Grid, class S>
void rms_norm(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x, const S* weight, S* y,
              Arithmetic<S>* statistics) {
  rows_by_pieces<S>(grid, "rms_norm", rows, features, RmsNormRow<S>{features, x, weight, y, statistics}, x, weight, y);
}
template <class Grid, class S>
void rms_norm_input_gradient(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x,
                             const Arithmetic<S>* statistics, const S* weight, const S* dy, S* dx) {
  rows_by_pieces<S>(grid, "rms_norm_input_gradient", rows, features,
                    NormGradientRow<S, false>{features, x, statistics, weight, dy, dx}, x, dy, weight, dx);
}
template <class Grid, class S>
void rms_norm_weight_gradient(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x,
                              const Arithmetic<S>* statistics, const S* dy, Arithmetic<S>* d_weight,
                              Arithmetic<S>* workspace) {
  add_column_sums<S>(grid, "rms_norm_weight_gradient", rows, features,
                     NormWeightTerm<S, false>{features, x, statistics, dy}, d_weight, workspace, x, dy);
}

template <class Grid, class S>
void softmax(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x, S* y) {
  rows_by_pieces<S>(grid, "softmax", rows, features, SoftmaxRow<S>{features, x, y}, x, y);
}
template <class Grid, class S>
void softmax_input_gradient(const Grid& grid, std::int64_t rows, std::int64_t features, const S* y, const S* dy,
                            S* dx) {
  rows_by_pieces<S>(grid, "softmax_input_gradient", rows, features,
                    SoftmaxGradientRow<S>{features, Arithmetic<S>(1), y, dy, dx}, y, dy, dx);
}

// row_losses: samples * rows values.
template <class Grid, class S>
void cross_entropy(const Grid& grid, std::int64_t samples, std::int64_t rows, std::int64_t classes, const S* x,
                   const std::int64_t* labels, Arithmetic<S> scale, Arithmetic<S>* losses, S* gradient,
                   Arithmetic<S>* row_losses) {
  rows_by_pieces<S>(grid, "cross_entropy", samples * rows, classes,
                    CrossEntropyRow<S>{classes, x, labels, scale, row_losses, gradient}, x, gradient);
  rows_by_pieces<Arithmetic<S>>(grid, "cross_entropy (mean)", samples, rows,
                                MeanRow<Arithmetic<S>>{rows, row_losses, losses}, row_losses);
}

template <class Grid, class S>
void global_average_pool(const Grid& grid, std::int64_t planes, std::int64_t plane, const S* x, S* y) {
  rows_by_pieces<S>(grid, "global_average_pool", planes, plane, MeanRow<S>{plane, x, y}, x);
}

}  // namespace pipewright::grid_kernels
