#include "runtime/transports/proof.hpp"

#include <stdexcept>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

namespace pipewright::runtime {
namespace {

// The bytes of a message up to its proof, or all of them.
template <class Message>
std::string_view bytes_of(const Message& message, std::size_t bytes = sizeof(Message)) {
  return {reinterpret_cast<const char*>(&message), bytes};
}

}  // namespace

Digest random_digest() {
  Digest drawn{};
  if (RAND_bytes(drawn.data(), static_cast<int>(drawn.size())) != 1)
    throw std::runtime_error("the system has no random numbers (OpenSSL: RAND_bytes)");
  return drawn;
}

Digest hmac_sha256(std::string_view key, std::string_view text) {
  Digest digest{};
  if (HMAC(EVP_sha256(), key.empty() ? "" : key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), nullptr) == nullptr)
    throw std::runtime_error("OpenSSL has no HMAC with SHA-256");
  return digest;
}

bool same(const Digest& a, const Digest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Digest proof_of(std::string_view key, const Challenge& challenge, const Claim& claim) {
  std::string text = "calls";
  text += bytes_of(challenge);
  text += bytes_of(claim, offsetof(Claim, proof));
  return hmac_sha256(key, text);
}

Digest proof_of(std::string_view key, const Challenge& challenge, const Claim& claim, const Reply& reply) {
  std::string text = "hears";
  text += bytes_of(challenge);
  text += bytes_of(claim);
  text += bytes_of(reply, offsetof(Reply, proof));
  return hmac_sha256(key, text);
}

std::string run_key(std::string_view secret, const Digest& run) {
  const Digest key = hmac_sha256(secret, bytes_of(run));
  return std::string(bytes_of(key));
}

}  // namespace pipewright::runtime
