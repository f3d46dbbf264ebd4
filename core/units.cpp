#include "core/units.hpp"

#include <string>

namespace pipewright::core {
namespace {

__extension__ typedef __int128 Wide;  // exact products of two 64-bit numbers

[[noreturn]] void overflow(const char* what) {
  throw OverflowError(std::string(what) +
                      " overflows: it is larger than 2^62 ns or bytes; look for a figure with the wrong unit");
}

}  // namespace

std::int64_t rounded(double value, const char* what) {
  if (!std::isfinite(value) || std::fabs(value) > static_cast<double>(kLargest)) overflow(what);
  return static_cast<std::int64_t>(std::llround(value));
}

std::int64_t scaled(std::int64_t value, std::int64_t numerator, std::int64_t denominator, const char* what) {
  PP_CHECK(value >= 0 && numerator >= 0 && denominator > 0);
  const Wide product = static_cast<Wide>(value) * numerator;
  const Wide result = (2 * product + denominator) / (2 * static_cast<Wide>(denominator));
  if (result > kLargest) overflow(what);
  return static_cast<std::int64_t>(result);
}

std::int64_t checked_sum(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum) || sum > kLargest) overflow(what);
  return sum;
}

std::int64_t checked_product(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > kLargest) overflow(what);
  return product;
}

Time transfer_time(double bytes, Bandwidth bandwidth) {
  PP_CHECK(bandwidth.value > 0);
  return {rounded(bytes / bandwidth.value * 1e9, "a transfer time")};
}

}  // namespace pipewright::core
