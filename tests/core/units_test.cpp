#include "core/units.hpp"

#include <doctest/doctest.h>

using namespace pipewright::tests;

TEST_CASE("A layer's figure scales to the micro-batch and is rounded once, halves up") {
  CHECK(scaled(Time{100}, 32, 128) == Time{25});
  CHECK(scaled(Time{10}, 1, 4) == Time{3});  // 2.5
  CHECK(scaled(Time{9}, 1, 4) == Time{2});   // 2.25
  CHECK(scaled(Time{11}, 1, 4) == Time{3});  // 2.75
  CHECK(scaled(Bytes{7}, 0, 3) == Bytes{0});
}

TEST_CASE("Scaling is exact where a 64-bit product would overflow") {
  // 2^61 * 6 / 4 = 3 * 2^60, although 2^61 * 6 passes 2^63.
  CHECK(scaled(Time{std::int64_t{1} << 61}, 6, 4) == Time{std::int64_t{3} << 60});
}

TEST_CASE("A figure beyond 2^62 is bad input, never a wrapped number") {
  CHECK(scaled(Time{kLargest}, 3, 3) == Time{kLargest});
  CHECK_THROWS_AS(scaled(Time{kLargest}, 4, 3), InputError);
  CHECK(checked_sum(Time{kLargest - 1}, Time{1}) == Time{kLargest});
  CHECK_THROWS_AS(checked_sum(Time{kLargest}, Time{1}), InputError);
  CHECK(checked_product(std::int64_t{1} << 31, std::int64_t{1} << 31, "x") == kLargest);
  CHECK_THROWS_AS(checked_product(std::int64_t{1} << 32, std::int64_t{1} << 31, "x"), InputError);
  CHECK_THROWS_AS(checked_product(std::int64_t{1} << 32, std::int64_t{1} << 32, "x"), InputError);
  CHECK_THROWS_AS(rounded(5e18, "x"), InputError);
  CHECK_THROWS_AS(rounded(std::numeric_limits<double>::quiet_NaN(), "x"), InputError);
}

TEST_CASE("Bytes over a bandwidth become whole nanoseconds") {
  CHECK(transfer_time(Bytes{1'000}, Bandwidth{1e9}) == Time{1'000});
  CHECK(transfer_time(Bytes{1}, Bandwidth{3e9}) == Time{0});  // a third of a nanosecond
  CHECK(transfer_time(Bytes{2}, Bandwidth{3e9}) == Time{1});  // two thirds
  CHECK(transfer_time(Bytes{5}, Bandwidth{std::numeric_limits<double>::infinity()}) == Time{0});
}

TEST_CASE("Seconds and ratios are for printing") {
  CHECK(seconds(Time{1'500'000'000}) == doctest::Approx(1.5));
  CHECK(ratio(Time{3}, Time{4}) == 0.75);
  CHECK(ratio(Time{3}, Time{0}) == 0.0);
}
