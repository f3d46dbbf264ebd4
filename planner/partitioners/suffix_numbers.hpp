// What the parts of suffix_dp count with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace pipewright {

// A label that no plan has reached.
constexpr std::int64_t kNoPlan = std::numeric_limits<std::int64_t>::max();

constexpr std::size_t at(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace pipewright
