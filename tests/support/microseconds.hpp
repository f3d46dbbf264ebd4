// Times as tests write them.
#pragma once

#include <cstdint>

#include "core/units.hpp"

namespace pipewright {

constexpr Time us(std::int64_t n) {
  return {n * 1'000};
}

}  // namespace pipewright
