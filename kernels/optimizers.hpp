// Optimizers over many tensors in one launch. Formulas: runtime/backend.hpp.
#pragma once

#include "kernels/storage.hpp"

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

constexpr int kTensorsPerLaunch = 64;

// The values of up to 64 tensors in a row; begin[i] counts those before tensor i.
template <class S, class T = S>
struct UpdateValue {
  UpdateRule<S> rule;
  int tensors = 0;
  std::int64_t begin[kTensorsPerLaunch + 1] = {};
  UpdatedTensor<S, T> tensor[kTensorsPerLaunch] = {};

  PIPEWRIGHT_BOTH void operator()(std::int64_t i) const {
    int low = 0, high = tensors;  // begin[low] <= i < begin[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (begin[middle] <= i ? low : high) = middle;
    }
    const UpdatedTensor<S, T>& at = tensor[low];
    const std::int64_t j = i - begin[low];
    const S updated = update(at, j);
    at.out[j] = updated;
    if (at.stored != nullptr) at.stored[j] = T(updated);
  }

 private:
  PIPEWRIGHT_BOTH S update(const UpdatedTensor<S, T>& at, std::int64_t j) const {
    const S g = at.g[j], w = at.w[j];
    switch (rule.kind) {
      case GpuOptimizer::Sgd: break;
      case GpuOptimizer::Momentum: {
        const S velocity = rule.mu * at.first[j] + g;
        at.first[j] = velocity;
        return w - rule.rate * velocity;
      }
      case GpuOptimizer::RmsProp: {
        const S square = rule.beta2 * at.first[j] + (S(1) - rule.beta2) * g * g;
        at.first[j] = square;
        return w - rule.rate * g / (std::sqrt(square) + rule.epsilon);
      }
      case GpuOptimizer::Adam: {
        const S mean = rule.beta1 * at.first[j] + (S(1) - rule.beta1) * g;
        const S square = rule.beta2 * at.second[j] + (S(1) - rule.beta2) * g * g;
        at.first[j] = mean, at.second[j] = square;
        return w - rule.rate * (mean / rule.correction1) / (std::sqrt(square / rule.correction2) + rule.epsilon);
      }
    }
    return w - rule.rate * g;
  }
};

template <class Grid, class S, class T>
void update(const Grid& grid, const UpdateRule<S>& rule, const UpdatedTensor<S, T>* tensors, std::int64_t count) {
  for (std::int64_t done = 0; done < count; done += kTensorsPerLaunch) {
    UpdateValue<S, T> body;
    body.rule = rule;
    for (; body.tensors < kTensorsPerLaunch && done + body.tensors < count; ++body.tensors) {
      body.tensor[body.tensors] = tensors[done + body.tensors];
      body.begin[body.tensors + 1] = body.begin[body.tensors] + tensors[done + body.tensors].n;
    }
    grid.values("update", body.begin[body.tensors], body);
  }
}

}  // namespace pipewright::grid_kernels
