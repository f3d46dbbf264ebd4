// Optimizers over many tensors in one launch. Formulas: runtime/backend.hpp.
#pragma once

#include <cmath>

#include "kernels/pieces.hpp"

namespace pipewright {

// One tensor of an update; out may be w. first, second: states: of momentum and rmsprop the first; of adam both.
// stored: where the new weights go as the layers' arithmetic reads them, in T; null: it reads `out`.
template <class S, class T = S>
struct UpdatedTensor {
  std::int64_t n;
  const S *w, *g;
  S *out, *first, *second;
  T* stored = nullptr;
};

enum class GpuOptimizer { Sgd, Momentum, RmsProp, Adam };

// rho of rmsprop is beta2; corrections of adam: 1 - beta^step.
template <class S>
struct UpdateRule {
  GpuOptimizer kind;
  S rate, mu, beta1, beta2, epsilon, correction1, correction2;
};

}  // namespace pipewright

namespace pipewright::grid_kernels {

constexpr int kTensorsPerLaunch = 56;  // so that they fit into the 4 KiB that every driver takes

// The values of up to 56 tensors in a row, by groups of a piece; begin[i] counts the groups before tensor i.
template <class S, class T = S>
struct UpdateValues {
  static constexpr int kGroup = kPerPiece<S>;
  UpdateRule<S> rule;
  int tensors = 0;
  std::int64_t begin[kTensorsPerLaunch + 1] = {};
  UpdatedTensor<S, T> tensor[kTensorsPerLaunch] = {};
  bool whole[kTensorsPerLaunch] = {};  // a group moves by one instruction

  void add(const UpdatedTensor<S, T>& at) {
    tensor[tensors] = at;
    whole[tensors] = begins_piece(at.w) && begins_piece(at.g) && begins_piece(at.out) && begins_piece(at.first) &&
                     begins_piece(at.second) && begins_piece(at.stored);
    begin[tensors + 1] = begin[tensors] + (at.n + kGroup - 1) / kGroup;
    ++tensors;
  }

  PIPEWRIGHT_BOTH void operator()(std::int64_t group) const {
    int low = 0, high = tensors;  // begin[low] <= group < begin[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (begin[middle] <= group ? low : high) = middle;
    }
    const UpdatedTensor<S, T>& at = tensor[low];
    const std::int64_t first = (group - begin[low]) * kGroup;
    if (whole[low] && first + kGroup <= at.n)
      step<kGroup>(at, first);
    else
      for (std::int64_t j = first; j < first + kGroup && j < at.n; ++j)
        step<1>(at, j);
  }

 private:
  template <int W>
  PIPEWRIGHT_BOTH void step(const UpdatedTensor<S, T>& at, std::int64_t j) const {
    const Values<S, W> updated = weights<W>(at, j);
    put<W>(at.out, j, updated);
    if (at.stored != nullptr) put<W>(at.stored, j, updated);
  }
  template <int W>
  PIPEWRIGHT_BOTH Values<S, W> weights(const UpdatedTensor<S, T>& at, std::int64_t j) const {
    const Values<S, W> g = take<W>(at.g, j), w = take<W>(at.w, j);
    switch (rule.kind) {
      case GpuOptimizer::Sgd: break;
      case GpuOptimizer::Momentum: {
        const auto velocity = each<W>([&](S v, S d) { return rule.mu * v + d; }, take<W>(at.first, j), g);
        put<W>(at.first, j, velocity);
        return each<W>([&](S old, S v) { return old - rule.rate * v; }, w, velocity);
      }
      case GpuOptimizer::RmsProp: {
        const auto square = mean_of_squares<W>(take<W>(at.first, j), g);
        put<W>(at.first, j, square);
        return each<W>([&](S old, S d, S s) { return old - rule.rate * d / (std::sqrt(s) + rule.epsilon); }, w, g,
                       square);
      }
      case GpuOptimizer::Adam: {  // all reads before the first write
        const auto last_mean = take<W>(at.first, j), last_square = take<W>(at.second, j);
        const auto mean = each<W>([&](S m, S d) { return rule.beta1 * m + (S(1) - rule.beta1) * d; }, last_mean, g);
        const auto square = mean_of_squares<W>(last_square, g);
        put<W>(at.first, j, mean);
        put<W>(at.second, j, square);
        return each<W>(
            [&](S old, S m, S s) {
              return old - rule.rate * (m / rule.correction1) / (std::sqrt(s / rule.correction2) + rule.epsilon);
            },
            w, mean, square);
      }
    }
    return each<W>([&](S old, S d) { return old - rule.rate * d; }, w, g);
  }
  template <int W>
  PIPEWRIGHT_BOTH Values<S, W> mean_of_squares(const Values<S, W>& last, const Values<S, W>& g) const {
    return each<W>([&](S s, S d) { return rule.beta2 * s + (S(1) - rule.beta2) * d * d; }, last, g);
  }
};

template <class Grid, class S, class T>
void update(const Grid& grid, const UpdateRule<S>& rule, const UpdatedTensor<S, T>* tensors, std::int64_t count) {
  for (std::int64_t done = 0; done < count; done += kTensorsPerLaunch) {
    UpdateValues<S, T> body;
    static_assert(sizeof(body) <= 4096 - 64);
    body.rule = rule;
    while (body.tensors < kTensorsPerLaunch && done + body.tensors < count)
      body.add(tensors[done + body.tensors]);
    grid.values("update", body.begin[body.tensors], body);
  }
}

}  // namespace pipewright::grid_kernels
