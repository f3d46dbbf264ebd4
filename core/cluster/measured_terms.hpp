// The words of a measured device (core/cluster/measured_device.hpp) that others use, too.
#pragma once

#include <cstdint>

#include "core/rooms.hpp"

namespace pipewright::core {

enum class SizeTerms : std::uint8_t { Waves, Work, Values };
enum class MeasuredPass : std::uint8_t { Forward, InputGradient, WeightGradient };

// How a library multiplies one size, as it tells itself; 0: it does not.
struct ProductAlgorithm {
  double waves = 0;  // how often its grid fills the SMs: 1.25 has a second wave a quarter full
  std::int64_t tile_rows = 0, tile_columns = 0;  // of the product
  std::int64_t split_k = 0;                      // parts of the depth whose sums are added; 1: whole
  bool operator==(const ProductAlgorithm&) const = default;
};

}  // namespace pipewright::core
