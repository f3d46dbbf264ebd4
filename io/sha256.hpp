// SHA-256 of a text, as 64 hexadecimal digits: the provenance of imported files.   [FIPS 180-4]
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace pipewright {

std::string sha256(std::string_view text);

// The same, piece by piece.
class Sha256 {
 public:
  void add(std::string_view piece);
  std::string digits() const;  // of all that was added

 private:
  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::uint64_t bytes_ = 0;
  std::string tail_;  // less than a block
};

}  // namespace pipewright
