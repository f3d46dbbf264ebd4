// Which values a dropout sets to 0. Nothing of it is stored: seed, place and a value's number say it again in the
// backward (dropout.hpp).
#pragma once

#include <cstdint>

#include "core/rooms.hpp"

namespace pipewright::kernels {

struct DropoutMask {
  double share = 0.1;       // of values that become 0, in [0, 1)
  std::uint64_t seed = 0;   // of a run
  std::uint64_t place = 0;  // of a dropout of a micro-batch: masks of different places have no bits in common

  // A value becomes 0 where its 32 random bits are below this: share 2^32, rounded.
  // 0.1: 429 496 730, 2.3e-11 beside the share.                                      tests/kernels/dropout_test.cpp
  std::uint32_t below() const {
    const double words = share * 0x1p32 + 0.5;
    return words >= 0x1p32 ? 0xffffffffu : static_cast<std::uint32_t>(words);
  }
  // What the others are multiplied by, so that the mean stays what it is.
  double factor() const { return 1 / (1 - share); }
};

}  // namespace pipewright::kernels
