// SHA-256 of a text, as 64 hexadecimal digits: the provenance of imported files.   [FIPS 180-4]
// "abc" has ba7816bf..f20015ad.                                           tests/io/sha256_test.cpp
#pragma once

#include <string>
#include <string_view>

#include "core/rooms.hpp"

struct evp_md_ctx_st;  // OpenSSL's

namespace pipewright::io {

std::string sha256(std::string_view text);

// The same, piece by piece.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void add(std::string_view piece);
  std::string digits();  // of all that was added; the last call

 private:
  evp_md_ctx_st* state_;
};

}  // namespace pipewright::io
