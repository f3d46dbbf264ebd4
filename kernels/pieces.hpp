// Pieces of 16 bytes, which move by one instruction where they begin at a multiple of 16.
#pragma once

#include <cstdint>

namespace pipewright::grid_kernels {

struct alignas(16) Piece {
  std::uint32_t words[4];
};

}  // namespace pipewright::grid_kernels
