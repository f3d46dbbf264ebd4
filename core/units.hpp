// Units of everything that pipewright computes with.
//
// A quantity is a number with a tag, so that a time never meets a byte count by accident: sums and comparisons work
// within one unit, crossings from one unit to another are functions written by name (`transfer_time`).
//
// Time is whole nanoseconds in 64 bits. Closed forms of the papers then hold with `==`, results do not depend on the
// order of additions, and 292 years fit. Bytes are whole, too. FLOPs are double: one step of a large model passes 2^63.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>

#include "core/check.hpp"

namespace pipewright::core {

template <class Tag, class Rep>
struct Quantity {
  using rep = Rep;
  Rep value{};

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator-() const { return {-value}; }
  constexpr Quantity& operator+=(Quantity other) { return value += other.value, *this; }
  constexpr Quantity& operator-=(Quantity other) { return value -= other.value, *this; }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return {a.value + b.value}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return {a.value - b.value}; }
  friend constexpr Quantity operator*(Quantity a, Rep factor) { return {a.value * factor}; }
  friend constexpr Quantity operator*(Rep factor, Quantity a) { return {a.value * factor}; }
};

using Time = Quantity<struct TimeTag, std::int64_t>;      // nanoseconds
using Bytes = Quantity<struct BytesTag, std::int64_t>;    // bytes
using Flops = Quantity<struct FlopsTag, double>;          // floating-point operations
using Bandwidth = Quantity<struct BandwidthTag, double>;  // bytes per second
using FlopRate = Quantity<struct FlopRateTag, double>;    // floating-point operations per second
using Power = Quantity<struct PowerTag, double>;          // watts
using Energy = Quantity<struct EnergyTag, double>;        // joules

constexpr Time kNever{std::numeric_limits<std::int64_t>::max()};

// Largest time and byte count that pipewright accepts or computes: 2^62, half of what 64 bits hold, so that one more
// addition cannot overflow. A result beyond it is an InputError ("overflows"), never a wrapped number.
constexpr std::int64_t kLargest = std::int64_t{1} << 62;

// What a caller may catch to say which layer or file the figure belongs to.
class OverflowError : public InputError {
 public:
  using InputError::InputError;
};

// Seconds as a double: for ratios and for printing, never for further time arithmetic.
constexpr double seconds(Time time) {
  return static_cast<double>(time.value) * 1e-9;
}

// a / b of two quantities of one unit, as a plain number; 0 where b is 0.
template <class Tag, class Rep>
constexpr double ratio(Quantity<Tag, Rep> a, Quantity<Tag, Rep> b) {
  return b.value == 0 ? 0.0 : static_cast<double>(a.value) / static_cast<double>(b.value);
}

// A double number of nanoseconds or bytes, rounded once to the nearest whole one (halves away from zero).
// Throws InputError when it is not finite or larger than `kLargest`; `what` names the figure in the message.
std::int64_t rounded(double value, const char* what);

// value * numerator / denominator, rounded once to the nearest whole number (halves up); exact in 128 bits.
// value, numerator >= 0, denominator > 0. Throws InputError when the result is larger than `kLargest`.
std::int64_t scaled(std::int64_t value, std::int64_t numerator, std::int64_t denominator, const char* what);
inline Time scaled(Time time, std::int64_t numerator, std::int64_t denominator) {
  return {scaled(time.value, numerator, denominator, "a time")};
}
inline Bytes scaled(Bytes bytes, std::int64_t numerator, std::int64_t denominator) {
  return {scaled(bytes.value, numerator, denominator, "a size")};
}

// a + b for figures that come from input: throws InputError when the sum is larger than `kLargest`.
std::int64_t checked_sum(std::int64_t a, std::int64_t b, const char* what);
inline Time checked_sum(Time a, Time b) {
  return {checked_sum(a.value, b.value, "a time")};
}
inline Bytes checked_sum(Bytes a, Bytes b) {
  return {checked_sum(a.value, b.value, "a size")};
}

// a * b for figures that come from input (a, b >= 0): throws InputError when the product is larger than `kLargest`.
std::int64_t checked_product(std::int64_t a, std::int64_t b, const char* what);

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// Time that `bytes` occupy a link of `bandwidth`: bytes / bandwidth, rounded once. 0 for 0 bytes; an infinite
// bandwidth takes no time. bandwidth > 0.
Time transfer_time(double bytes, Bandwidth bandwidth);
inline Time transfer_time(Bytes bytes, Bandwidth bandwidth) {
  return transfer_time(static_cast<double>(bytes.value), bandwidth);
}

}  // namespace pipewright::core
