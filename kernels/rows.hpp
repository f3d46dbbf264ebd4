// Kernels over rows: norms, softmax, loss. Semantics, layouts and constants of runtime/backends/cpu_kernels.hpp; T is a
// Team of grid.hpp, S the stored type (storage.hpp); statistics, losses and gradients of weights are in the type of the
// arithmetic.
#pragma once

#include "kernels/columns.hpp"
#include "kernels/grid.hpp"

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
template <class T, class F>
PIPEWRIGHT_TEAM void row_each(const T& team, std::int64_t n, const F& f) {
  team.each([&](int t) {
    for (std::int64_t j = t; j < n; j += T::size())
      f(j);
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
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, std::int64_t r) const {
    const S* const in = x + r * features;
    S* const out = y + r * features;
    const F n = static_cast<F>(features);
    const F mean = row_sum(team, features, [&](std::int64_t j) { return F(in[j]); }) / n;
    const F squares = row_sum(team, features, [&](std::int64_t j) { return (in[j] - mean) * (in[j] - mean); });
    const F inverse = F(1) / std::sqrt(squares / n + F(kNormEpsilon));
    const S *const w = weight, *const b = bias;
    row_each(team, features, [&](std::int64_t j) {
      const F z = (in[j] - mean) * inverse;
      out[j] = S(w == nullptr ? z : b == nullptr ? z * w[j] : z * w[j] + b[j]);
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
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, std::int64_t r) const {
    const S *const in = x + r * features, *const d_out = dy + r * features, *const w = weight;
    S* const out = dx + r * features;
    const F mean = kLayer ? statistics[2 * r] : F(0), inverse = kLayer ? statistics[2 * r + 1] : statistics[r];
    const auto g = [&](std::int64_t j) -> F { return w == nullptr ? F(d_out[j]) : d_out[j] * w[j]; };
    const Two<F> sums = row_sum(team, features, [&](std::int64_t j) { return Two<F>{g(j), g(j) * (in[j] - mean)}; });
    const F n = static_cast<F>(features);
    const F a = kLayer ? sums.a / n : F(0), b = sums.b / n * inverse * inverse;
    row_each(team, features, [&](std::int64_t j) { out[j] = S(inverse * (g(j) - a - (in[j] - mean) * b)); });
  }
};

template <class S>
struct RmsNormRow {
  using F = Arithmetic<S>;
  std::int64_t features;
  const S *x, *weight;
  S* y;
  F* statistics;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, std::int64_t r) const {
    const S *const in = x + r * features, *const w = weight;
    S* const out = y + r * features;
    const F squares = row_sum(team, features, [&](std::int64_t j) { return in[j] * in[j]; });
    const F inverse = F(1) / std::sqrt(squares / static_cast<F>(features) + F(kNormEpsilon));
    row_each(team, features,
             [&](std::int64_t j) { out[j] = S(w == nullptr ? in[j] * inverse : in[j] * inverse * w[j]); });
    team.each([&](int t) {
      if (t == 0) statistics[r] = inverse;
    });
  }
};

// What a row's softmax divides by: e^(x[j] * scale - largest) is value(x[j]), `share` of it the probability.
template <class F>
struct SoftmaxSums {
  F scale, largest, total;
  PIPEWRIGHT_BOTH F value(F x) const { return std::exp(x * scale - largest); }
  PIPEWRIGHT_BOTH F share() const { return F(1) / total; }
  PIPEWRIGHT_BOTH F log_sum() const { return largest + std::log(total); }  // of e^(x scale)
};
template <class T, class S>
PIPEWRIGHT_TEAM SoftmaxSums<Arithmetic<S>> softmax_sums(const T& team, std::int64_t seen, Arithmetic<S> scale,
                                                        const S* in) {
  using F = Arithmetic<S>;
  const F largest = team.max([&](int t) {
    F most = in[t < seen ? t : 0];
    for (std::int64_t j = t; j < seen; j += T::size())
      most = larger(most, F(in[j]));
    return most;
  }) * scale;
  SoftmaxSums<F> sums{scale, largest, F(0)};
  sums.total = row_sum(team, seen, [&](std::int64_t j) { return sums.value(in[j]); });
  return sums;
}
// out[j] = e^(x[j] * scale) / sum for j < seen, 0 behind; out may be in. Nothing in between is stored, so that every
// probability is rounded once.
template <class T, class S>
PIPEWRIGHT_TEAM void softmax_row(const T& team, std::int64_t n, std::int64_t seen, Arithmetic<S> scale, const S* in,
                                 S* out) {
  using F = Arithmetic<S>;
  const SoftmaxSums<F> sums = softmax_sums(team, seen, scale, in);
  const F share = sums.share();
  row_each(team, n, [&](std::int64_t j) { out[j] = S(j < seen ? sums.value(in[j]) * share : F(0)); });
}

template <class S>
struct SoftmaxRow {
  std::int64_t features;
  const S* x;
  S* y;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, std::int64_t r) const {
    softmax_row(team, features, features, Arithmetic<S>(1), x + r * features, y + r * features);
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
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, std::int64_t r) const {
    const std::int64_t seen = causal ? r % queries + 1 + keys - queries : keys;
    softmax_row<T, S>(team, keys, seen, scale, p + r * keys, p + r * keys);
  }
};

// dx = y (dy - sum(y dy)) * scale; dx may be dy.
template <class S>
struct SoftmaxGradientRow {
  std::int64_t features;
  Arithmetic<S> scale;
  const S *y, *dy;
  S* dx;
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, std::int64_t r) const {
    const S *const out = y + r * features, *const d_out = dy + r * features;
    const Arithmetic<S> mean = row_sum(team, features, [&](std::int64_t j) { return out[j] * d_out[j]; });
    S* const into = dx + r * features;
    row_each(team, features, [&](std::int64_t j) { into[j] = S(out[j] * (d_out[j] - mean) * scale); });
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
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, std::int64_t r) const {
    const S* const in = x + r * classes;
    S* const out = gradient + r * classes;
    const std::int64_t label = labels[r];
    const F of_label = in[label];  // before it is overwritten, should x be the gradient
    const SoftmaxSums<F> sums = softmax_sums(team, classes, F(1), in);
    const F share = sums.share(), factor = scale;
    team.each([&](int t) {
      if (t == 0) row_losses[r] = sums.log_sum() - of_label;
    });
    row_each(team, classes, [&](std::int64_t j) {
      const F probability = sums.value(in[j]) * share;
      out[j] = S((j == label ? probability - F(1) : probability) * factor);
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
  template <class T>
  PIPEWRIGHT_TEAM void operator()(const T& team, std::int64_t r) const {
    const F total = row_sum(team, features, [&](std::int64_t j) { return F(x[r * features + j]); });
    team.each([&](int t) {
      if (t == 0) mean[r] = S(total / static_cast<F>(features));
    });
  }
};

// ---- what they make up ----------------------------------------------------------------------------------------------

template <class Grid, class S>
void layer_norm(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x, const S* weight, const S* bias,
                S* y, Arithmetic<S>* statistics) {
  grid.rows("layer_norm", rows, features, LayerNormRow<S>{features, x, weight, bias, y, statistics});
}
template <class Grid, class S>
void layer_norm_input_gradient(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x,
                               const Arithmetic<S>* statistics, const S* weight, const S* dy, S* dx) {
  grid.rows("layer_norm_input_gradient", rows, features,
            NormGradientRow<S, true>{features, x, statistics, weight, dy, dx});
}

template <class S, bool kLayer>
struct NormWeightTerm {
  using F = Arithmetic<S>;
  std::int64_t features;
  const S* x;
  const F* statistics;
  const S* dy;
  PIPEWRIGHT_BOTH F operator()(std::int64_t r, std::int64_t j) const {
    const F z = kLayer ? (x[r * features + j] - statistics[2 * r]) * statistics[2 * r + 1]
                       : x[r * features + j] * statistics[r];
    return dy[r * features + j] * z;
  }
};
// workspace: columns_workspace(rows, features) values. d_bias may be null.
template <class Grid, class S>
void layer_norm_weight_gradient(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x,
                                const Arithmetic<S>* statistics, const S* dy, Arithmetic<S>* d_weight,
                                Arithmetic<S>* d_bias, Arithmetic<S>* workspace) {
  add_column_sums(grid, "layer_norm_weight_gradient", rows, features,
                  NormWeightTerm<S, true>{features, x, statistics, dy}, d_weight, workspace);
  if (d_bias != nullptr) bias_gradient(grid, rows, features, dy, d_bias, workspace);
}

template <class Grid, class S>
void rms_norm(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x, const S* weight, S* y,
              Arithmetic<S>* statistics) {
  grid.rows("rms_norm", rows, features, RmsNormRow<S>{features, x, weight, y, statistics});
}
template <class Grid, class S>
void rms_norm_input_gradient(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x,
                             const Arithmetic<S>* statistics, const S* weight, const S* dy, S* dx) {
  grid.rows("rms_norm_input_gradient", rows, features,
            NormGradientRow<S, false>{features, x, statistics, weight, dy, dx});
}
template <class Grid, class S>
void rms_norm_weight_gradient(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x,
                              const Arithmetic<S>* statistics, const S* dy, Arithmetic<S>* d_weight,
                              Arithmetic<S>* workspace) {
  add_column_sums(grid, "rms_norm_weight_gradient", rows, features,
                  NormWeightTerm<S, false>{features, x, statistics, dy}, d_weight, workspace);
}

template <class Grid, class S>
void softmax(const Grid& grid, std::int64_t rows, std::int64_t features, const S* x, S* y) {
  grid.rows("softmax", rows, features, SoftmaxRow<S>{features, x, y});
}
template <class Grid, class S>
void softmax_input_gradient(const Grid& grid, std::int64_t rows, std::int64_t features, const S* y, const S* dy,
                            S* dx) {
  grid.rows("softmax_input_gradient", rows, features, SoftmaxGradientRow<S>{features, Arithmetic<S>(1), y, dy, dx});
}

// row_losses: samples * rows values.
template <class Grid, class S>
void cross_entropy(const Grid& grid, std::int64_t samples, std::int64_t rows, std::int64_t classes, const S* x,
                   const std::int64_t* labels, Arithmetic<S> scale, Arithmetic<S>* losses, S* gradient,
                   Arithmetic<S>* row_losses) {
  grid.rows("cross_entropy", samples * rows, classes,
            CrossEntropyRow<S>{classes, x, labels, scale, row_losses, gradient});
  grid.rows("cross_entropy (mean)", samples, rows, MeanRow<Arithmetic<S>>{rows, row_losses, losses});
}

template <class Grid, class S>
void global_average_pool(const Grid& grid, std::int64_t planes, std::int64_t plane, const S* x, S* y) {
  grid.rows("global_average_pool", planes, plane, MeanRow<S>{plane, x, y});
}

}  // namespace pipewright::grid_kernels
