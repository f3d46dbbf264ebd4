#include "calibrate/statistics.hpp"

#include <vector>

#include <doctest/doctest.h>

using namespace pipewright;

TEST_CASE("The slowest five percent are dropped, since delays only ever add") {
  std::vector<double> ns(100, 1000.0);
  ns.push_back(1e6);
  const Statistics s = statistics(ns);
  CHECK(s.mean == 1000);
  CHECK(s.median == 1000);
  CHECK(s.count == 101);
}

TEST_CASE("Mean, percentiles and spread of 1 ... 100") {
  std::vector<double> ns;
  for (int i = 100; i >= 1; --i)
    ns.push_back(i);
  const Statistics s = statistics(ns);
  CHECK(s.mean == 48);  // of 1 ... 95
  CHECK(s.p5 == 5);
  CHECK(s.p95 == 95);
  CHECK(s.spread() == doctest::Approx(90.0 / 48));
}

TEST_CASE("One time is its own mean") {
  CHECK(statistics({7}).mean == 7);
}

TEST_CASE("A line goes through points on it, and no coefficient is negative") {
  const Line line = line_through({{0, 2}, {10, 22}, {100, 202}});
  CHECK(line.fixed == doctest::Approx(2));
  CHECK(line.per_unit == doctest::Approx(2));
  const Line through_zero = line_through({{10, 1}, {100, 30}});  // unbounded: fixed -2.2
  CHECK(through_zero.fixed == 0);
  CHECK(through_zero.per_unit > 0);
  const Line falling = line_through({{1, 10}, {10, 5}});
  CHECK(falling.per_unit == 0);
  CHECK(falling.fixed > 5);
}
