// Kernels over rows: norms, softmax, loss. Semantics, layouts and constants of runtime/backends/cpu_kernels.hpp; T is a
// team of grid.hpp, S the stored type (storage.hpp); statistics, losses and gradients of weights are in the type of the
// arithmetic. Every sum of a row reads it again: plain, not tuned.
#pragma once

#include "kernels/columns.hpp"

namespace pipewright::kernels::grid_kernels {

constexpr double kNormEpsilon = 1e-5;  // as the CPU's

// f(j) for every column of [0, n).
template <class T, class F>
PIPEWRIGHT_TEAM void row_each(const T& team, I n, const F& f) {
  team.each([&](int t) {
    for (I j = t; j < n; j += kWarp)
      f(j);
  });
}

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias                                               [Ba16] eq. 4
// Of rms_norm, which has no bias, the mean is taken to be 0. statistics {rows, 2}: mean and 1 / sqrt(...); of rms_norm
// {rows}, without means.
template <class S, bool kLayer>
struct NormRow {
  using F = Arithmetic<S>;
  I features;
  const S *x, *weight, *bias;
  S* y;
  F* statistics;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, I r) const {
    const S* const in = x + r * features;
    S* const out = y + r * features;
    const F n = static_cast<F>(features);
    const F mean = kLayer ? row_sum(team, features, [&](I j) { return F(in[j]); }) / n : F(0);
    const F squares = row_sum(team, features, [&](I j) { return (in[j] - mean) * (in[j] - mean); });
    const F inverse = F(1) / std::sqrt(squares / n + F(kNormEpsilon));
    row_each(team, features, [&](I j) {
      const F z = (in[j] - mean) * inverse, scaled = weight == nullptr ? z : z * weight[j];
      out[j] = S(bias == nullptr ? scaled : scaled + bias[j]);
    });
    team.each([&](int t) {
      if (t != 0) return;
      if (kLayer) statistics[2 * r] = mean;
      statistics[kLayer ? 2 * r + 1 : r] = inverse;
    });
  }
};

// With g = dy * weight and z = (x - mean) * inverse: dx = inverse * (g - mean(g) - z mean(g z)). Of rms_norm mean and
// mean(g) are 0.
template <class S, bool kLayer>
struct NormGradientRow {
  using F = Arithmetic<S>;
  I features;
  const S* x;
  const F* statistics;
  const S *weight, *dy;
  S* dx;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, I r) const {
    const S *const in = x + r * features, *const d_out = dy + r * features;
    S* const out = dx + r * features;
    const F mean = kLayer ? statistics[2 * r] : F(0), inverse = kLayer ? statistics[2 * r + 1] : statistics[r];
    const F n = static_cast<F>(features);
    const auto g = [&](I j) { return weight == nullptr ? F(d_out[j]) : d_out[j] * F(weight[j]); };
    const F a = kLayer ? row_sum(team, features, g) / n : F(0);
    const F b = row_sum(team, features, [&](I j) { return g(j) * (in[j] - mean); }) / n * inverse * inverse;
    row_each(team, features, [&](I j) { out[j] = S(inverse * (g(j) - a - (in[j] - mean) * b)); });
  }
};

// The shares that a softmax is made of, e^(x * scale - largest), of a row's first n values; scale > 0.
template <class F>
struct SoftmaxPower {
  F scale, largest;
  PIPEWRIGHT_BOTH F operator()(F x) const { return std::exp(x * scale - largest); }
};
template <class T, class S>
PIPEWRIGHT_TEAM SoftmaxPower<Arithmetic<S>> softmax_power(const T& team, I n, Arithmetic<S> scale, const S* in) {
  using F = Arithmetic<S>;
  const F largest = team.max([&](int t) {
    F most = in[0];
    for (I j = t; j < n; j += kWarp)
      most = Larger{}(most, F(in[j]));
    return most;
  });
  return {scale, largest * scale};
}

// y[j] = e^(x[j] * scale) / sum; y may be x. Nothing in between is stored, so that every probability is rounded once.
// queries > 0: causal scores; row r is query r % queries, which sees the columns up to r % queries + features -
// queries, and has 0 behind.
template <class S>
struct SoftmaxRow {
  using F = Arithmetic<S>;
  I features, queries;
  F scale;
  const S* x;
  S* y;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, I r) const {
    const I seen = queries > 0 ? r % queries + 1 + features - queries : features;
    const S* const in = x + r * features;
    S* const out = y + r * features;
    const auto power = softmax_power(team, seen, scale, in);
    const F share = F(1) / row_sum(team, seen, [&](I j) { return power(in[j]); });
    row_each(team, features, [&](I j) { out[j] = S(j < seen ? power(in[j]) * share : F(0)); });
  }
};

// dx = y (dy - sum(y dy)) * scale; dx may be dy.
template <class S>
struct SoftmaxGradientRow {
  using F = Arithmetic<S>;
  I features;
  F scale;
  const S *y, *dy;
  S* dx;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, I r) const {
    const S *const p = y + r * features, *const d_out = dy + r * features;
    S* const out = dx + r * features;
    const F mean = row_sum(team, features, [&](I j) { return F(p[j]) * F(d_out[j]); });
    row_each(team, features, [&](I j) { out[j] = S(p[j] * (d_out[j] - mean) * scale); });
  }
};

// One row of logits: its loss, and (softmax - 1 at the label) * scale; gradient may be x.
template <class S>
struct CrossEntropyRow {
  using F = Arithmetic<S>;
  I classes;
  const S* x;
  const I* labels;
  F scale;
  F* row_losses;
  S* gradient;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, I r) const {
    const S* const in = x + r * classes;
    S* const out = gradient + r * classes;
    const I label = labels[r];
    const F of_label = in[label];  // before it is overwritten
    const auto power = softmax_power(team, classes, F(1), in);
    const F total = row_sum(team, classes, [&](I j) { return power(in[j]); }), share = F(1) / total;
    row_each(team, classes, [&](I j) { out[j] = S((power(in[j]) * share - F(j == label ? 1 : 0)) * scale); });
    team.each([&](int t) {
      if (t == 0) row_losses[r] = power.largest + std::log(total) - of_label;
    });
  }
};

// mean[r] of a row's values: of a plane (global_average_pool), of a sample's losses.
template <class S>
struct MeanRow {
  using F = Arithmetic<S>;
  I features;
  const S* x;
  S* mean;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, I r) const {
    const F total = row_sum(team, features, [&](I j) { return F(x[r * features + j]); });
    team.each([&](int t) {
      if (t == 0) mean[r] = S(total / static_cast<F>(features));
    });
  }
};

// ---- what they make up ----------------------------------------------------------------------------------------------

template <class Grid, class S>
void layer_norm(const Grid& grid, I rows, I features, const S* x, const S* weight, const S* bias, S* y,
                Arithmetic<S>* statistics) {
  grid.rows("layer_norm", rows, NormRow<S, true>{features, x, weight, bias, y, statistics});
}
template <class Grid, class S>
void layer_norm_input_gradient(const Grid& grid, I rows, I features, const S* x, const Arithmetic<S>* statistics,
                               const S* weight, const S* dy, S* dx) {
  grid.rows("layer_norm_input_gradient", rows, NormGradientRow<S, true>{features, x, statistics, weight, dy, dx});
}
template <class Grid, class S>
void rms_norm(const Grid& grid, I rows, I features, const S* x, const S* weight, S* y, Arithmetic<S>* statistics) {
  grid.rows("rms_norm", rows, NormRow<S, false>{features, x, weight, nullptr, y, statistics});
}
template <class Grid, class S>
void rms_norm_input_gradient(const Grid& grid, I rows, I features, const S* x, const Arithmetic<S>* statistics,
                             const S* weight, const S* dy, S* dx) {
  grid.rows("rms_norm_input_gradient", rows, NormGradientRow<S, false>{features, x, statistics, weight, dy, dx});
}

template <class S, bool kLayer>
struct NormWeightTerm {
  using F = Arithmetic<S>;
  I features;
  const S* x;
  const F* statistics;
  const S* dy;
  PIPEWRIGHT_BOTH F operator()(I r, I j) const {
    const F mean = kLayer ? statistics[2 * r] : F(0), inverse = kLayer ? statistics[2 * r + 1] : statistics[r];
    return dy[r * features + j] * ((x[r * features + j] - mean) * inverse);
  }
};
// workspace: columns_workspace(rows, features) values. d_bias may be null.
template <class Grid, class S>
void layer_norm_weight_gradient(const Grid& grid, I rows, I features, const S* x, const Arithmetic<S>* statistics,
                                const S* dy, Arithmetic<S>* d_weight, Arithmetic<S>* d_bias, Arithmetic<S>* workspace) {
  add_column_sums(grid, "layer_norm_weight_gradient", rows, features,
                  NormWeightTerm<S, true>{features, x, statistics, dy}, d_weight, workspace);
  if (d_bias != nullptr) bias_gradient(grid, rows, features, dy, d_bias, workspace);
}
template <class Grid, class S>
void rms_norm_weight_gradient(const Grid& grid, I rows, I features, const S* x, const Arithmetic<S>* statistics,
                              const S* dy, Arithmetic<S>* d_weight, Arithmetic<S>* workspace) {
  add_column_sums(grid, "rms_norm_weight_gradient", rows, features,
                  NormWeightTerm<S, false>{features, x, statistics, dy}, d_weight, workspace);
}

template <class Grid, class S>
void softmax(const Grid& grid, I rows, I features, const S* x, S* y) {
  grid.rows("softmax", rows, SoftmaxRow<S>{features, 0, Arithmetic<S>(1), x, y});
}
template <class Grid, class S>
void softmax_input_gradient(const Grid& grid, I rows, I features, const S* y, const S* dy, S* dx) {
  grid.rows("softmax_input_gradient", rows, SoftmaxGradientRow<S>{features, Arithmetic<S>(1), y, dy, dx});
}

// labels: each within the classes. row_losses: samples * rows values of workspace.
template <class Grid, class S>
void cross_entropy(const Grid& grid, I samples, I rows, I classes, const S* x, const I* labels, Arithmetic<S> scale,
                   Arithmetic<S>* losses, S* gradient, Arithmetic<S>* row_losses) {
  grid.rows("cross_entropy", samples * rows, CrossEntropyRow<S>{classes, x, labels, scale, row_losses, gradient});
  grid.rows("cross_entropy (mean)", samples, MeanRow<Arithmetic<S>>{rows, row_losses, losses});
}

template <class Grid, class S>
void global_average_pool(const Grid& grid, I planes, I plane, const S* x, S* y) {
  grid.rows("global_average_pool", planes, MeanRow<S>{plane, x, y});
}

}  // namespace pipewright::kernels::grid_kernels
