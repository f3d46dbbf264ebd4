// Values in 16 bits: every pattern, and the floats around it.
#include "kernels/storage.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <doctest/doctest.h>

namespace pipewright::tests {
namespace {

constexpr std::uint32_t kPatterns = 1u << 16;

// The value that the format's definition gives a pattern: (-1)^s 2^(e - bias) 1.f, or 2^(1 - bias) 0.f for e = 0.
double defined(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int e = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const auto f = static_cast<double>(bits & ((1u << fraction_bits) - 1));
  const double sign = bits >> 15 != 0 ? -1 : 1;
  if (e == (1 << exponent_bits) - 1) return f != 0 ? NAN : sign * INFINITY;
  return sign * std::ldexp(e == 0 ? f : f + (1 << fraction_bits), std::max(e, 1) - bias - fraction_bits);
}

template <class T>
void check_patterns(int exponent_bits, int fraction_bits) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < kPatterns; ++bits) {
    T stored;
    stored.bits = static_cast<std::uint16_t>(bits);
    const float value = stored;
    const double right = defined(bits, exponent_bits, fraction_bits);
    if (std::isnan(right)) {
      wrong += std::isnan(value) && T(value).bits == storage::kNan ? 0 : 1;
      continue;
    }
    wrong += static_cast<double>(value) == right && T(value).bits == bits ? 0 : 1;
    // Halfway to the neighbour further from zero: the even one of the two; just beside it: the nearer one.
    const double next = defined(bits + 1, exponent_bits, fraction_bits);
    if (!std::isfinite(right) || !std::isfinite(next)) continue;
    const auto middle = static_cast<float>((right + next) / 2);
    const float towards_zero = std::nextafter(middle, 0.0f), away = std::nextafter(middle, 2 * middle);
    wrong += T(middle).bits == bits + (bits & 1) ? 0 : 1;
    wrong += T(towards_zero).bits == bits ? 0 : 1;
    wrong += T(away).bits == bits + 1 ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("Every pattern of 16 bits reads as its format defines it, and is what is stored for that value and near it") {
  check_patterns<Bf16>(8, 7);
  check_patterns<Fp16>(5, 10);
}

TEST_CASE("Values at the ends of the formats") {
  CHECK(Bf16(1.0f + 0x1p-8f).bits == 0x3f80);  // the worked number of storage.hpp
  CHECK(Fp16(65519.0f).bits == 0x7bff);        // the largest: 65504
  CHECK(std::isinf(static_cast<float>(Fp16(65520.0f))));
  CHECK(static_cast<float>(Fp16(-1e30f)) == -std::numeric_limits<float>::infinity());
  CHECK(Fp16(0x1p-25f).bits == 0);  // half of the least one: to the even one
  CHECK(Fp16(-0x1.8p-25f).bits == 0x8001);
  CHECK(Bf16(std::numeric_limits<float>::max()).bits == 0x7f80);
  CHECK(Bf16(-0.0f).bits == 0x8000);
  CHECK(Bf16(std::bit_cast<float>(0xffffffffu)).bits == storage::kNan);
}

TEST_CASE("tf32 keeps 10 bits of a float's fraction, to the nearest, halves to the even one") {
  CHECK(in_tf32(1.0f + 0x1p-11f) == 1.0f);
  CHECK(in_tf32(1.0f + 0x1p-10f) == 1.0f + 0x1p-10f);
  CHECK(in_tf32(1.0f + 0x3p-11f) == 1.0f + 0x1p-9f);
  CHECK(in_tf32(-1.0f - 0x1.1p-11f) == -1.0f - 0x1p-10f);
  CHECK(in_tf32(1e-30f) == doctest::Approx(1e-30).epsilon(0x1p-11));
  CHECK(std::isinf(in_tf32(std::numeric_limits<float>::infinity())));
  CHECK(std::isnan(in_tf32(NAN)));
}

}  // namespace
}  // namespace pipewright::tests
