// Times as tests write them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/units.hpp"

namespace pipewright::tests {

constexpr Time us(std::int64_t n) {
  return {n * 1'000};
}

inline std::vector<Time> times(const std::vector<std::int64_t>& values) {
  std::vector<Time> list;
  for (const auto value : values)
    list.push_back({value});
  return list;
}

}  // namespace pipewright::tests
