#include "io/store/sha256.hpp"

#include <array>
#include <stdexcept>

#include <fmt/format.h>
#include <openssl/evp.h>

namespace pipewright::io {
namespace {

void demand(bool done) {
  if (!done) throw std::runtime_error("OpenSSL has no SHA-256");
}

}  // namespace

Sha256::Sha256() : state_(EVP_MD_CTX_new()) {
  demand(state_ != nullptr && EVP_DigestInit_ex(state_, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() {
  EVP_MD_CTX_free(state_);
}

void Sha256::add(std::string_view piece) {
  demand(EVP_DigestUpdate(state_, piece.data(), piece.size()) == 1);
}

std::string Sha256::digits() {
  std::array<unsigned char, 32> digest{};
  demand(EVP_DigestFinal_ex(state_, digest.data(), nullptr) == 1);
  std::string hex;
  for (const unsigned char byte : digest)
    hex += fmt::format("{:02x}", byte);
  return hex;
}

std::string sha256(std::string_view text) {
  Sha256 sum;
  sum.add(text);
  return sum.digits();
}

}  // namespace pipewright::io
