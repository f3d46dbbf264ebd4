// How much longer the slowest of several devices takes.
#include "core/cost/slowest_device.hpp"

#include <doctest/doctest.h>

using namespace pipewright::tests;

// Expected largest of n standard normal values: 1 / sqrt(pi), 3 / (2 sqrt(pi)), and published tables of order statistics.
TEST_CASE("the slowest of two, three, eight, 100 and 1000 devices") {
  for (const auto& [devices, expected] :
       {std::pair{2, 0.5641896}, {3, 0.8462844}, {4, 1.0293754}, {8, 1.4236003}, {100, 2.5075936}, {1000, 3.2414358}})
    CHECK(slowest_of(devices, 0.1) == doctest::Approx(1 + 0.1 * expected).epsilon(1e-5));
  CHECK(slowest_of(1024, 0.015) == doctest::Approx(1.0487).epsilon(1e-4));
  CHECK(slowest_of(1, 0.1) == 1);
  CHECK(slowest_of(1000, 0) == 1);
}
