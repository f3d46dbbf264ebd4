#include "core/divisors.hpp"

#include <doctest/doctest.h>

using namespace pipewright::tests;

TEST_CASE("divisors: ascending, each once; in words, or as a description where there are many") {
  CHECK(divisors(1) == std::vector<std::int64_t>{1});
  CHECK(divisors(36) == std::vector<std::int64_t>{1, 2, 3, 4, 6, 9, 12, 18, 36});
  CHECK(divisors_in_words(1) == "1");
  CHECK(divisors_in_words(8) == "1, 2, 4 or 8");
  CHECK(divisors_in_words(5040) == "a divisor of 5040");
  CHECK(divisors_in_words(5040, 8) == "1, 2, 3, 4, 5, 6, 7 or 8");
  CHECK(divisors_in_words(7, 6) == "1");
  CHECK(divisors_in_words(7, 0) == "1");
  CHECK(divisors(2'147'483'647).size() == 2);  // at once
}
