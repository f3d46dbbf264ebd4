// Optimizers over many tensors in one launch. Formulas: runtime/backend.hpp.
#pragma once

#include <cmath>

#include "kernels/storage.hpp"

namespace pipewright::kernels {

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

}  // namespace pipewright::kernels

namespace pipewright::kernels::grid_kernels {

constexpr int kTensorsPerLaunch = 56;  // so that they fit into the 4 KiB that every driver takes

// The values of up to 56 tensors in a row; begin[i] counts those before tensor i.
template <class S, class T = S>
struct UpdateValues {
  UpdateRule<S> rule;
  int tensors = 0;
  I begin[kTensorsPerLaunch + 1] = {};
  UpdatedTensor<S, T> tensor[kTensorsPerLaunch] = {};

  PIPEWRIGHT_BOTH void operator()(I i) const {
    int low = 0, high = tensors;  // begin[low] <= i < begin[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (begin[middle] <= i ? low : high) = middle;
    }
    const UpdatedTensor<S, T>& at = tensor[low];
    const I j = i - begin[low];
    const S updated = weight(at, j);
    at.out[j] = updated;
    if (at.stored != nullptr) at.stored[j] = T(updated);
  }

 private:
  PIPEWRIGHT_BOTH S weight(const UpdatedTensor<S, T>& at, I j) const {
    const S w = at.w[j], g = at.g[j];
    switch (rule.kind) {
      case GpuOptimizer::Sgd: break;
      case GpuOptimizer::Momentum: return w - rule.rate * (at.first[j] = rule.mu * at.first[j] + g);
      case GpuOptimizer::RmsProp: {
        const S square = at.first[j] = mean_of_squares(at.first[j], g);
        return w - rule.rate * g / (std::sqrt(square) + rule.epsilon);
      }
      case GpuOptimizer::Adam: {
        const S mean = at.first[j] = rule.beta1 * at.first[j] + (S(1) - rule.beta1) * g;
        const S square = at.second[j] = mean_of_squares(at.second[j], g);
        return w - rule.rate * (mean / rule.correction1) / (std::sqrt(square / rule.correction2) + rule.epsilon);
      }
    }
    return w - rule.rate * g;
  }
  PIPEWRIGHT_BOTH S mean_of_squares(S last, S g) const { return rule.beta2 * last + (S(1) - rule.beta2) * g * g; }
};

// All tensors of the list in one launch per 56 of them; the list is the host's.
template <class Grid, class S, class T>
void update(const Grid& grid, const UpdateRule<S>& rule, const UpdatedTensor<S, T>* tensors, I count) {
  for (I done = 0; done < count; done += kTensorsPerLaunch) {
    UpdateValues<S, T> body;
    static_assert(sizeof(body) <= 4096 - 64);
    body.rule = rule;
    for (int& i = body.tensors; i < kTensorsPerLaunch && done + i < count; ++i) {
      body.tensor[i] = tensors[done + i];
      body.begin[i + 1] = body.begin[i] + tensors[done + i].n;
    }
    grid.values("update", body.begin[body.tensors], body);
  }
}

}  // namespace pipewright::kernels::grid_kernels
