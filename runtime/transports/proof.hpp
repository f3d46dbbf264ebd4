// How two processes prove to each other that they know the secret of their run, before either believes a word.
//
//     listener -> caller   Challenge   n, fresh and random
//     caller -> listener   Claim       who calls whom, of how many; m, fresh and random; HMAC(key, "calls" n claim)
//     listener -> caller   Reply       accepted or refused; HMAC(key, "hears" n claim reply)
//     caller -> listener   one byte    the caller has checked that, and stays
//
// HMAC is that of [RFC 2104] with SHA-256: key "Jefe" and text "what do ya want for nothing?" give 5bdcc146.. [RFC 4231,
// case 2]. The exchange is the mutual authentication in three passes of ISO/IEC 9798-4. A message of an earlier meeting
// proves nothing in this one, as n and m are 32 random bytes; one of a listener is none of a caller, as their words
// differ. Every message has one size, and a comparison takes the same time for right and wrong.
//
// At rank 0 the key is the run's secret; elsewhere it is the run's own, made of the secret and of a random number that
// rank 0 has drawn for this run. Without a secret the key is empty: then an answer proves no more than that somebody
// speaks as ranks do now.
//
// What follows on the connection is neither encrypted nor signed: who can read and change packets on the way can read
// and change the run.
//
// Tests: tests/runtime/proof_test.cpp
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/rooms.hpp"

namespace pipewright::runtime {

using Digest = std::array<unsigned char, 32>;

Digest random_digest();  // of the system's random numbers; throws std::runtime_error
Digest hmac_sha256(std::string_view key, std::string_view text);
bool same(const Digest& a, const Digest& b);  // in the same time, whatever they are

inline constexpr std::array<char, 8> kRankMagic = {'p', 'w', 'r', 'a', 'n', 'k', 's', '2'};

// As they travel: ranks run the same program on the same kind of processor.
struct Challenge {
  std::array<char, 8> magic = kRankMagic;
  Digest random{};
};
struct Claim {
  std::array<char, 8> magic = kRankMagic;
  std::int32_t caller = 0, called = 0, world = 0;
  std::int32_t port = 0;  // where the caller listens for others
  Digest random{};
  Digest proof{};
};
struct Reply {
  std::array<char, 8> magic = kRankMagic;
  std::int32_t refused = 0, world = 0;
  Digest proof{};
};
static_assert(sizeof(Challenge) == 40 && sizeof(Claim) == 88 && sizeof(Reply) == 48);  // no holes: all bytes count

// Of everything in the message but its proof.
Digest proof_of(std::string_view key, const Challenge& challenge, const Claim& claim);
Digest proof_of(std::string_view key, const Challenge& challenge, const Claim& claim, const Reply& reply);

// The key of one run.
std::string run_key(std::string_view secret, const Digest& run);

}  // namespace pipewright::runtime
