// What the operators of a layer share: checks of shapes, sizes of windows, arithmetic of activations. Inside core/model
// only, for the layer_*.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/check.hpp"
#include "core/ids.hpp"
#include "core/model/layer_builder.hpp"

namespace pipewright::core::layer_rules {

inline constexpr double kIndexBytes = 8;  // token numbers and positions of maxima, as PyTorch keeps them

inline std::string number(std::int64_t value) {
  return std::to_string(value);
}

inline void need_at_least_1(std::int64_t value, const char* what) {
  if (value < 1) throw InputError(std::string(what) + " " + number(value) + " is too small; use 1 or more");
}

inline void need_rank(const Shape& shape, int rank, const char* op, const char* needs) {
  if (shape.rank != rank)
    throw InputError(std::string(op) + " needs an input of shape " + needs + ", not " + text(shape));
}

// Size of a window's output; refuses windows larger than what they slide over.
inline std::int64_t slid(std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t padding, bool ceil,
                         const char* what) {
  const std::int64_t room = size + 2 * padding - kernel;
  if (room < 0)
    throw InputError(std::string(what) + ": kernel " + number(kernel) + " is larger than its input of " + number(size) +
                     (padding > 0 ? " padded by " + number(padding) + " on each side" : "") +
                     "; use a larger input or a smaller kernel");
  std::int64_t out = room / stride + 1;
  if (ceil && room % stride != 0) {
    ++out;
    if ((out - 1) * stride >= size + padding) --out;  // a window must begin inside the input
  }
  return out;
}

struct PointwiseFlops {
  double forward, backward;
};
inline PointwiseFlops pointwise(Activation kind) {
  switch (kind) {
    case Activation::Relu: return {1, 1};
    case Activation::Gelu: return {5, 11};
    case Activation::Silu: return {5, 9};
    case Activation::Tanh: return {1, 3};
    case Activation::Sigmoid: return {4, 3};
  }
  return {};
}
inline std::string_view name_of(Activation kind) {
  switch (kind) {
    case Activation::Relu: return "relu";
    case Activation::Gelu: return "gelu";
    case Activation::Silu: return "silu";
    case Activation::Tanh: return "tanh";
    case Activation::Sigmoid: return "sigmoid";
  }
  return "";
}

inline double real(std::int64_t value) {
  return static_cast<double>(value);
}

// Chunks that a scan or linear attention cuts L tokens into, of Q tokens and what is left: sums over them of Q, Q^2, Q^3, and
// how many there are. L = 7, Q = 3: 7, 19, 55; 3.
struct Chunks {
  double tokens = 0, squares = 0, cubes = 0, count = 0;
  double pairs() const { return (squares + tokens) / 2; }  // of a token and those up to it
  double earlier() const { return (squares - tokens) / 2; }
};
inline Chunks chunks_of(std::int64_t tokens, std::int64_t chunk) {
  const double whole = real(tokens / chunk), q = real(chunk), rest = real(tokens % chunk);
  return {real(tokens), whole * q * q + rest * rest, whole * q * q * q + rest * rest * rest,
          whole + (rest > 0 ? 1 : 0)};
}

// So many values, and bytes whatever a value takes, divided among a group or not.
inline Amount amount_of(bool sharded, double values, double fixed = 0) {
  Amount amount;
  (sharded ? amount.sharded_values : amount.values) = values, (sharded ? amount.sharded_fixed : amount.fixed) = fixed;
  return amount;
}

// The last dimension becomes `features`.
inline Shape with_features(Shape shape, std::int64_t features) {
  shape.dim[at(shape.rank - 1)] = features;
  return shape;
}

}  // namespace pipewright::core::layer_rules
