#include "calibrate/statistics.hpp"

#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/worker_result.hpp"

using namespace pipewright::tests;

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

TEST_CASE("middle half: the shortest and the longest quarter do not count, in whatever order they come") {
  CHECK(middle_half({8, 1, 6, 3, 4, 5, 2, 7}) == std::vector<char>{0, 0, 1, 1, 1, 1, 0, 0});
  CHECK(middle_half({1, 2, 3}) == std::vector<char>{1, 1, 1});
  CHECK(middle_half({5, 5, 5, 5}) == std::vector<char>{0, 1, 1, 0});
  CHECK(middle_half({}).empty());
  CHECK(mean({1, 2, 6}) == 3);
}

TEST_CASE("Rounds that are not kept are forgotten with their times of layers, updates and ops") {
  WorkerResult worker;
  for (int round = 0; round < 4; ++round) {
    worker.steps.emplace_back().number = round;
    worker.layer_ns[{0, Pass::Forward, 0}].insert(worker.layer_ns[{0, Pass::Forward, 0}].end(),
                                                  {round + 0.1, round + 0.2});
    worker.overhead_ns.push_back(round);
    worker.update_ns.emplace_back(7, round);
  }
  WorkerResult more = worker;
  keep_rounds(worker, {0, 1, 0, 1});
  CHECK(worker.layer_ns[{0, Pass::Forward, 0}] == std::vector<double>{1.1, 1.2, 3.1, 3.2});
  CHECK(worker.overhead_ns == std::vector<double>{1, 3});
  CHECK(worker.update_ns == std::vector<std::pair<double, double>>{{7, 1}, {7, 3}});
  REQUIRE(worker.steps.size() == 2);
  CHECK(worker.steps[1].number == 3);
  keep_rounds(more, {1, 0, 0, 0});
  add_rounds(worker, std::move(more));
  CHECK(worker.overhead_ns == std::vector<double>{1, 3, 0});
  CHECK(worker.steps.size() == 3);
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
