// Random numbers that are the same on every machine.
#include "core/random.hpp"

#include <cmath>

#include <doctest/doctest.h>

using namespace pipewright::tests;

TEST_CASE("the first numbers of seed 1 are those of splitmix64") {
  Random random(1);
  CHECK(random.bits() == 0x910a2dec89025cc1U);
  CHECK(random.bits() == 0xbeeb8da1658eec67U);
  CHECK(random.bits() == 0xf893a2eefb32555eU);
}

TEST_CASE("draws have the mean and the deviation of their distributions") {
  constexpr int kDraws = 100'000;
  Random random(7);
  double normal = 0, square = 0, uniform = 0, within = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double z = random.normal();
    normal += z, square += z * z;
    uniform += random.uniform(2, 4);
    within = std::max(within, std::abs(random.normal_within(1.5)));
  }
  CHECK(std::abs(normal / kDraws) < 0.015);  // more than four standard errors
  CHECK(std::abs(square / kDraws - 1) < 0.02);
  CHECK(std::abs(uniform / kDraws - 3) < 0.01);
  CHECK(within <= 1.5);
  CHECK(within > 1.45);
}

TEST_CASE("streams of one seed differ") {
  CHECK(Random(1, 1).bits() != Random(1, 2).bits());
  CHECK(Random(1, 1).bits() != Random(2, 1).bits());
}
