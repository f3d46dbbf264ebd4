#include "runtime/transports/proof.hpp"

#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace pipewright::tests;

namespace {

std::string digits(const Digest& digest) {
  std::string text;
  for (const unsigned char byte : digest)
    text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

TEST_CASE("HMAC gives the published examples of RFC 4231") {
  CHECK(digits(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(digits(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("A proof is of its key, its random numbers, its ranks, its world, and of who speaks") {
  const Challenge challenge{.random = random_digest()};
  const Claim claim{.caller = 1, .called = 0, .world = 2, .port = 40000, .random = random_digest(), .proof = {}};
  const Digest right = proof_of("secret", challenge, claim);
  CHECK(same(right, proof_of("secret", challenge, claim)));
  const auto differs = [&](std::string_view key, const auto& change) {
    Challenge other_challenge = challenge;
    Claim other = claim;
    change(other_challenge, other);
    return !same(right, proof_of(key, other_challenge, other));
  };
  CHECK(differs("Secret", [](Challenge&, Claim&) {}));
  CHECK(differs("", [](Challenge&, Claim&) {}));
  CHECK(differs("secret", [](Challenge& one, Claim&) { one.random = random_digest(); }));
  CHECK(differs("secret", [](Challenge&, Claim& one) { one.random.back() ^= 1; }));
  CHECK(differs("secret", [](Challenge&, Claim& one) { one.caller = 2; }));
  CHECK(differs("secret", [](Challenge&, Claim& one) { one.called = 1; }));
  CHECK(differs("secret", [](Challenge&, Claim& one) { one.world = 3; }));
  CHECK(differs("secret", [](Challenge&, Claim& one) { one.port = 40001; }));

  const Reply accepted{.refused = 0, .world = 2, .proof = {}}, refused{.refused = 1, .world = 2, .proof = {}};
  CHECK(!same(right, proof_of("secret", challenge, claim, accepted)));
  CHECK(!same(proof_of("secret", challenge, claim, accepted), proof_of("secret", challenge, claim, refused)));
  CHECK(!same(proof_of("secret", challenge, claim, accepted), proof_of("Secret", challenge, claim, accepted)));
}

TEST_CASE("Two runs with one secret have two keys") {
  CHECK(run_key("secret", random_digest()) != run_key("secret", random_digest()));
  CHECK(run_key("secret", Digest{}) != run_key("Secret", Digest{}));
  CHECK(run_key("secret", Digest{}) == run_key("secret", Digest{}));
}
