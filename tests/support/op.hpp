// An op by the numbers of its virtual stage, micro-batch (or round) and bucket.
#pragma once

#include <cstdint>

#include "core/plan/schedule.hpp"

namespace pipewright::tests {

inline Op op(Kind kind, int v, int m, int bucket = 0) {
  return {kind, static_cast<std::uint16_t>(v), static_cast<std::uint32_t>(m), static_cast<std::uint16_t>(bucket)};
}

}  // namespace pipewright::tests
