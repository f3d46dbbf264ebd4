// Values in 16 bits, and the type that arithmetic on stored values uses.
//
//     stored as    sign, exponent, fraction bits    largest      unit roundoff    arithmetic
//     Bf16         1, 8, 7                          3.39e38      2^-9             float
//     Fp16         1, 5, 10                         65504        2^-12            float
//     float                                                                       float
//     double       (tests)                                                        double
//
// A stored value reads as a float; to store one is a rounding and is written down: T(x). To the nearest, halves to the
// even one [IEEE754] 4.3.1; NaN becomes 0x7fff. A GPU's own instructions give the same bits.
//
// 1 + 2^-8 lies halfway between the neighbours 1 and 1 + 2^-7 of Bf16: 1.     tests/kernels/storage_test.cpp
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/grid.hpp"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace pipewright::kernels {

namespace storage {

constexpr std::uint16_t kNan = 0x7fff;

PIPEWRIGHT_BOTH inline std::uint32_t bits_of(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return std::bit_cast<std::uint32_t>(x);
#endif
}
PIPEWRIGHT_BOTH inline float float_of(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}
// `bits` without its lowest `dropped` ones, to the nearest; a carry runs into the exponent, as it should.
PIPEWRIGHT_BOTH inline std::uint32_t rounded_to_even(std::uint32_t bits, int dropped) {
  const std::uint32_t half = std::uint32_t{1} << (dropped - 1), odd = bits >> dropped & 1;
  return (bits + half - 1 + odd) >> dropped;
}

PIPEWRIGHT_BOTH inline std::uint16_t to_bf16(float x) {
#ifdef __CUDA_ARCH__
  return __bfloat16_as_ushort(__float2bfloat16_rn(x));
#else
  return x != x ? kNan : static_cast<std::uint16_t>(rounded_to_even(bits_of(x), 16));
#endif
}
PIPEWRIGHT_BOTH inline float from_bf16(std::uint16_t bits) {
  return float_of(std::uint32_t{bits} << 16);
}

PIPEWRIGHT_BOTH inline std::uint16_t to_fp16(float x) {
#ifdef __CUDA_ARCH__
  return __half_as_ushort(__float2half_rn(x));
#else
  const std::uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  std::uint32_t rounded = 0;
  if (size > 0x7f800000u) return kNan;
  if (size >= 0x47800000u)  // 2^16 and above
    rounded = 0x7c00u;
  else if (size >= 0x38800000u)  // 2^-14: the least normal one; 65520 and above carry into infinity
    rounded = rounded_to_even(size - 0x38000000u, 13);
  else if (size >= 0x33000000u)  // 2^-25: half of the least one
    rounded = rounded_to_even((size & 0x7fffffu) | 0x800000u, static_cast<int>(126 - (size >> 23)));
  return static_cast<std::uint16_t>(sign | rounded);
#endif
}
PIPEWRIGHT_BOTH inline float from_fp16(std::uint16_t bits) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(bits));
#else
  const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ffu;
  if (exponent == 0x1f) return float_of(sign | 0x7f800000u | fraction << 13);
  if (exponent > 0) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
  const float size = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -size : size;
#endif
}

}  // namespace storage

struct Bf16 {
  std::uint16_t bits;
  Bf16() = default;
  PIPEWRIGHT_BOTH explicit Bf16(float x) : bits(storage::to_bf16(x)) {}
  PIPEWRIGHT_BOTH operator float() const { return storage::from_bf16(bits); }
};
struct Fp16 {
  std::uint16_t bits;
  Fp16() = default;
  PIPEWRIGHT_BOTH explicit Fp16(float x) : bits(storage::to_fp16(x)) {}
  PIPEWRIGHT_BOTH operator float() const { return storage::from_fp16(bits); }
};
static_assert(sizeof(Bf16) == 2 && sizeof(Fp16) == 2);

// What values of T are computed in, and their sums.
template <class T>
struct ArithmeticOf {
  using type = T;
};
template <>
struct ArithmeticOf<Bf16> {
  using type = float;
};
template <>
struct ArithmeticOf<Fp16> {
  using type = float;
};
template <class T>
using Arithmetic = typename ArithmeticOf<T>::type;

// fp32 with the fraction of tf32, 10 bits: what tensor cores see of the factors of a product.
PIPEWRIGHT_BOTH inline float in_tf32(float x) {
  return x != x ? x : storage::float_of(storage::rounded_to_even(storage::bits_of(x), 13) << 13);
}

}  // namespace pipewright::kernels
