// Inside runtime/backends/cpu_kernels*.cpp only: sums over a row in an order of their own, and functions that the
// compiler vectorises. Everything lies in an unnamed namespace: each of those files has its own copy.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "runtime/backends/cpu_kernels.hpp"

// A loop whose rounds do not touch one another's values: vector code without a look at addresses, in place too.
#define PIPEWRIGHT_ELEMENTWISE _Pragma("GCC ivdep")

namespace pipewright::runtime::cpu_kernels {
namespace {

inline constexpr int kLanes = 16;

// What one register holds. GCC splits a wider vector through memory, at a tenth of the speed.
#if defined(__AVX512F__)
inline constexpr int kRegister = 64;
#elif defined(__AVX__)
inline constexpr int kRegister = 32;
#else
inline constexpr int kRegister = 16;
#endif
template <class S>
struct RegisterOf;
template <>
struct RegisterOf<float> {
  using type = float __attribute__((vector_size(kRegister)));
};
template <>
struct RegisterOf<double> {
  using type = double __attribute__((vector_size(kRegister)));
};

// 16 values side by side, in as many registers as it takes: the order of a sum is the same for every ISA.
template <class S>
struct Lanes {
  using Register = typename RegisterOf<S>::type;
  static constexpr int kEach = kRegister / static_cast<int>(sizeof(S)), kParts = kLanes / kEach;
  Register part[kParts] = {};

  static Lanes from(const S* x) {  // rows need not begin at a multiple of anything
    Lanes out;
    for (int i = 0; i < kParts; ++i)
      std::memcpy(&out.part[i], x + i * kEach, kRegister);
    return out;
  }
  // part by part: sum = f(sum, values...)
  template <class F, class... More>
  void each(const F& f, const More&... more) {
    for (int i = 0; i < kParts; ++i)
      part[i] = f(part[i], more.part[i]...);
  }
  S folded() const {
    S sums[kLanes];
    std::memcpy(sums, part, sizeof sums);
    for (int half = kLanes / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l)
        sums[l] += sums[l + half];
    return sums[0];
  }
};

template <class S>
inline S sum(std::int64_t n, const S* x) {
  Lanes<S> sums;
  std::int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes)
    sums.each([](auto total, auto value) { return total + value; }, Lanes<S>::from(x + j));
  S total = sums.folded();
  for (; j < n; ++j)
    total += x[j];
  return total;
}

// Sum of (x - a)^2.
template <class S>
inline S sum_of_squares(std::int64_t n, const S* x, S a) {
  Lanes<S> sums;
  std::int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes)
    sums.each([a](auto total, auto value) { return total + (value - a) * (value - a); }, Lanes<S>::from(x + j));
  S total = sums.folded();
  for (; j < n; ++j)
    total += (x[j] - a) * (x[j] - a);
  return total;
}

template <class S>
inline S dot(std::int64_t n, const S* x, const S* y) {
  Lanes<S> sums;
  std::int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes)
    sums.each([](auto total, auto one, auto other) { return total + one * other; }, Lanes<S>::from(x + j),
              Lanes<S>::from(y + j));
  S total = sums.folded();
  for (; j < n; ++j)
    total += x[j] * y[j];
  return total;
}

template <class S>
inline S maximum(std::int64_t n, const S* x) {
  S largest = x[0];
  std::int64_t j = 0;
  if (n >= kLanes) {
    Lanes<S> lanes = Lanes<S>::from(x);
    for (j = kLanes; j + kLanes <= n; j += kLanes)
      lanes.each([](auto most, auto value) { return value > most ? value : most; }, Lanes<S>::from(x + j));
    S of_lanes[kLanes];
    std::memcpy(of_lanes, lanes.part, sizeof of_lanes);
    for (int l = 0; l < kLanes; ++l)
      largest = of_lanes[l] > largest ? of_lanes[l] : largest;
  }
  for (; j < n; ++j)
    largest = x[j] > largest ? x[j] : largest;
  return largest;
}

// ---- functions of one value -----------------------------------------------------------------------------------------
// Of double: the standard library's. Of float: polynomials without branches or tables, so that loops over them become
// vector code; their errors against the standard library are measured in tests/runtime/kernels_test.cpp.

inline double exponential(double x) {
  return std::exp(x);
}
inline double error_function(double x) {
  return std::erf(x);
}
inline double hyperbolic_tangent(double x) {
  return std::tanh(x);
}

// e^x = 2^k e^r, |r| <= ln 2 / 2; coefficients of Cephes, expf.c (S. L. Moshier). Below the smallest normal number: 0;
// above 88.37: e^88.37 = 2.4e38. NaN stays NaN.
inline float exponential(float x) {
  const float low = -87.3365f, high = 88.37f;
  const float inside = x < low ? low : x > high ? high : x;
  const float shifted = inside * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the sum's last bits are the nearest integer
  const float k = shifted - 12582912.0f;
  const float r = (inside - k * 0.693359375f) + k * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const auto whole = static_cast<std::uint32_t>(__builtin_bit_cast(std::int32_t, shifted) - 0x4b400000 + 127) << 23;
  const float power = __builtin_bit_cast(float, whole);
  return x < low ? 0.0f : p * power;
}

// Rational function of Eigen's erf (SpecialFunctionsImpl.h, generic_fast_erf_float); 1 beyond 4.
inline float error_function(float value) {
  const float x = value < -4.0f ? -4.0f : value > 4.0f ? 4.0f : value;
  const float x2 = x * x;
  float p = -2.72614225801306e-10f;
  p = p * x2 + 2.77068142495902e-08f;
  p = p * x2 - 2.10102402082508e-06f;
  p = p * x2 - 5.69250639462346e-05f;
  p = p * x2 - 7.34990630326855e-04f;
  p = p * x2 - 2.95459980854025e-03f;
  p = p * x2 - 1.60960333262415e-02f;
  float q = -1.45660718464996e-05f;
  q = q * x2 - 2.13374055278905e-04f;
  q = q * x2 - 1.68282697438203e-03f;
  q = q * x2 - 7.37332916720468e-03f;
  q = q * x2 - 1.42647390514189e-02f;
  return x * p / q;
}

// Near 0 the polynomial of Cephes, tanhf.c; else 1 - 2 / (e^2|x| + 1).
inline float hyperbolic_tangent(float x) {
  const float size = x < 0 ? -x : x, s = x * x;
  float p = -5.70498872745e-3f;
  p = p * s + 2.06390887954e-2f;
  p = p * s - 5.37397155531e-2f;
  p = p * s + 1.33314422036e-1f;
  p = p * s - 3.33332819422e-1f;
  const float near = p * s * x + x;
  const float far = 1.0f - 2.0f / (exponential(2.0f * size) + 1.0f);
  return size < 0.625f ? near : x < 0 ? -far : far;
}

// Overwrites x with e^(x * scale - shift).
template <class S>
inline void exponentials(std::int64_t n, S scale, S shift, S* x) {
  PIPEWRIGHT_ELEMENTWISE
  for (std::int64_t j = 0; j < n; ++j)
    x[j] = exponential(x[j] * scale - shift);
}

template <class S>
inline void set(std::int64_t n, S value, S* x) {
  PIPEWRIGHT_ELEMENTWISE
  for (std::int64_t j = 0; j < n; ++j)
    x[j] = value;
}

template <class S>
inline void times(std::int64_t n, S factor, S* x) {
  PIPEWRIGHT_ELEMENTWISE
  for (std::int64_t j = 0; j < n; ++j)
    x[j] *= factor;
}

// x becomes its softmax, of x * scale; the log of the sum of e^(x scale) is returned.
template <class S>
inline S softmax_in_place(std::int64_t n, S scale, S* x) {
  const S largest = maximum(n, x) * scale;
  exponentials(n, scale, largest, x);
  const S total = sum(n, x);
  times(n, S(1) / total, x);
  return largest + std::log(total);
}

}  // namespace
}  // namespace pipewright::runtime::cpu_kernels
