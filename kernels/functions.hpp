// Activations, and numbers at random, as functions of one value.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/grid.hpp"

namespace pipewright::kernels {

enum class GpuFunction { Relu, Gelu, Silu, Tanh, Sigmoid };  // in the order of the CPU's Function; gelu by erf

}  // namespace pipewright::kernels

namespace pipewright::kernels::grid_kernels {

template <class S>
PIPEWRIGHT_BOTH S sigmoid(S x) {
  return S(1) / (S(1) + std::exp(-x));
}
template <class S>
PIPEWRIGHT_BOTH S normal_share(S x) {  // of a standard normal variable, below x
  return S(0.5) * (S(1) + std::erf(x * S(0.70710678118654752440)));
}

template <class S>
PIPEWRIGHT_BOTH S value_of(GpuFunction function, S x) {
  switch (function) {
    case GpuFunction::Relu: return x < 0 ? S(0) : x;  // NaN stays NaN
    case GpuFunction::Gelu: return x * normal_share(x);
    case GpuFunction::Silu: return x * sigmoid(x);
    case GpuFunction::Tanh: return std::tanh(x);
    case GpuFunction::Sigmoid: return sigmoid(x);
  }
  return x;
}

// f'(x), of what is kept: y of relu, tanh and sigmoid, x of gelu and silu.
template <class S>
PIPEWRIGHT_BOTH S slope_of(GpuFunction function, S kept) {
  switch (function) {
    case GpuFunction::Relu: return kept > 0 ? S(1) : S(0);
    case GpuFunction::Gelu:
      return normal_share(kept) + kept * S(0.39894228040143267794) * std::exp(S(-0.5) * kept * kept);
    case GpuFunction::Silu: {
      const S s = sigmoid(kept);
      return s * (S(1) + kept * (S(1) - s));
    }
    case GpuFunction::Tanh: return S(1) - kept * kept;
    case GpuFunction::Sigmoid: return kept * (S(1) - kept);
  }
  return kept;
}

// f'(x) of x itself.
template <class S>
PIPEWRIGHT_BOTH S slope_at(GpuFunction function, S x) {
  const bool keeps_output = function == GpuFunction::Tanh || function == GpuFunction::Sigmoid;
  return slope_of(function, keeps_output ? value_of(function, x) : x);
}

// The i-th of a sequence of 64 random bits: splitmix64 of its number, so that every thread finds its own.   [Steele14]
PIPEWRIGHT_BOTH inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
// In (0, 1): 24 bits, the middle of each step; exact in float.
PIPEWRIGHT_BOTH inline float unit_of(std::uint64_t bits) {
  return (static_cast<float>(bits >> 41) + 0.5f) * 0x1p-23f;
}

}  // namespace pipewright::kernels::grid_kernels
