// The finder's bounds and orders against all orders of small problems.
#include <cstdint>
#include <limits>

#include <doctest/doctest.h>

#include "sim/finder/windows.hpp"
#include "tests/sim/finder_problems.hpp"
#include "tests/support/rounds.hpp"

namespace pipewright::tests {
namespace {

// Recomputations of all micro-batches, or of all but the last one.
void with_recomputation(Random& chance, OrderProblem& problem) {
  for (VirtualStageId v = 0; v < problem.chunks(); ++v)
    problem.again.push_back(number_between(chance, 0, 9));
  problem.again_count = problem.micro_batches - static_cast<int>(number_between(chance, 0, 1));
}

// How often the best of all orders was found, and proven to be it.
struct AgainstAllOrders {
  int problems = 0, best_found = 0, proven = 0;

  // Whether the problem has an order. The least measure of all of them is in `best`.
  bool add(const OrderProblem& problem, std::int64_t evaluations = 3000) {
    best = best_of_all(problem);
    if (best == std::numeric_limits<std::int64_t>::max()) return false;
    found = find_order(problem, {.evaluations = evaluations, .seed = 1});
    REQUIRE_FALSE(found.order.begin.empty());
    CHECK(found.bound.value <= best);
    CHECK(value(found, problem.measure) >= best);
    check_kept(problem, found);
    ++problems, best_found += value(found, problem.measure) == best, proven += found.bound.value == best;
    return true;
  }

  std::int64_t best = 0;
  FoundOrder found;
};

}  // namespace

TEST_CASE("finder: of all orders of 400 small problems none beats the bound, and the best one is found") {
  Random chance(1);
  AgainstAllOrders all;
  for (int i = 0; i < rounds(400); ++i) {
    CAPTURE(i);
    const int stages = 1 + i % 3, micro_batches = stages == 3 ? 2 + i / 3 % 2 : 1 + i / 3 % 4;
    OrderProblem problem = by_chance(chance, stages, micro_batches);
    problem.measure = i % 2 == 0 ? OrderMeasure::Span : OrderMeasure::Step;
    all.add(problem);
  }
  CHECK(all.problems >= rounds(390));
  CHECK(all.best_found >= all.problems * 99 / 100);
  CHECK(all.proven >= all.problems / 2);
}

TEST_CASE("finder: likewise with two chunks on each stage, there and back and in two directions") {
  Random chance(2);
  for (const bool two_ways : {false, true}) {
    AgainstAllOrders all;
    const int kProblems = rounds(300);
    for (int i = 0; i < kProblems; ++i) {
      CAPTURE(i);
      CAPTURE(two_ways);
      OrderProblem problem = two_by_chance(chance, i % 60 == 0 ? 4 : 1 + i % 3, two_ways);
      problem.measure = i % 2 == 0 ? OrderMeasure::Span : OrderMeasure::Step;
      CHECK(all.add(problem));
    }
    CHECK(all.best_found >= kProblems * 95 / 100);
    CHECK(all.proven >= kProblems / 2);
  }
}

TEST_CASE("finder: likewise with recomputations, which may run before the gradient is there") {
  Random chance(11);
  AgainstAllOrders all;
  int waited = 0;
  for (int i = 0; i < rounds(400); ++i) {
    const int stages = 1 + i % 3;
    OrderProblem problem = i % 2 == 0 ? by_chance(chance, stages, stages == 3 ? 2 : 1 + i / 3 % 3)
                                      : two_by_chance(chance, stages, i % 4 == 1);
    problem.measure = i / 2 % 2 == 0 ? OrderMeasure::Span : OrderMeasure::Step;
    with_recomputation(chance, problem);
    if (i % 8 == 7) with_cells(chance, problem, 70);
    CAPTURE(i);
    if (!all.add(problem)) continue;
    OrderProblem in_order = problem;  // as if each waited for its gradient
    for (VirtualStageId v = 0; v < problem.chunks(); ++v)
      in_order.input[at(v)] += problem.again_of(v);
    in_order.again.clear(), in_order.again_count = 0, in_order.pair.clear();
    if (problem.again_count == problem.micro_batches && problem.pair.empty())
      waited += order_bound(in_order).value > all.best;
  }
  CHECK(all.problems >= rounds(380));
  CHECK(all.best_found >= all.problems * 95 / 100);
  CHECK(waited > rounds(20));  // bounds that would have been false
}

TEST_CASE(
    "finder: the least room is that of one micro-batch at a time, each chunk's backward behind the one after it") {
  Random chance(12);
  for (int i = 0; i < 60; ++i) {
    OrderProblem problem = two_by_chance(chance, 1 + i % 2, false);
    for (std::size_t v = 0; v < at(problem.chunks()); ++v)
      problem.kept_after_input[v] = number_between(chance, 0, 9);
    for (StageId k = 0; k < problem.stages; ++k)
      problem.cap[at(k)] = least_cap(problem, k);
    CHECK_FALSE(find_order(problem, {.evaluations = 10, .seed = 1}).order.begin.empty());
    --problem.cap.front();
    CHECK(best_of_all(problem) == std::numeric_limits<std::int64_t>::max());
  }
}

TEST_CASE("finder: two chunks on one stage, one micro-batch: a wait for the hop is all that no order avoids") {
  // F of 4, a hop of 1, F of 5, B of 8, B of 1, W of 3 and of 0: 22, by hand.
  OrderProblem problem = alike(1, 2, 1, {}, 4, 4, 8);
  problem.forward = {4, 5}, problem.input = {1, 8}, problem.weights = {3, 0};
  problem.down = {1};
  CHECK(best_of_all(problem) == 22);
  CHECK(order_bound(problem).value == 22);
}

// All 5266 times 17500 orders were tried once: the best one takes 114. With the most Ws left the last B is early; with fewer
// Ws and more Bs it is earlier still.
TEST_CASE("finder: two chunks and two micro-batches: the bound leaves open whether Ws or Bs are left at the end") {
  OrderProblem problem{.stages = 2, .virtual_stages = 2, .micro_batches = 2, .chunk_order = ChunkOrder::V};
  problem.forward = {7, 6, 6, 6}, problem.input = {3, 3, 8, 7}, problem.weights = {4, 7, 4, 5};
  problem.down = {0, 0, 5}, problem.up = {1, 0, 10};
  problem.held = {2, 2, 2, 3}, problem.kept_after_input = {2, 1, 1, 0}, problem.cap = {5, 6};
  CHECK(order_bound(problem).value <= 114);
  const FoundOrder found = find_order(problem, {.evaluations = 20'000, .seed = 1});
  CHECK(found.order.span() == 114);
  CHECK(found.bound.value <= 114);
}

TEST_CASE("finder: windows of time refute no value that an order has, and most of those that none has") {
  Random chance(3);
  int problems = 0, refuted = 0;
  for (int i = 0; i < rounds(1200); ++i) {
    const int stages = 1 + i / 3 % 3;
    OrderProblem problem = i % 3 == 0 ? by_chance(chance, stages, stages == 3 ? 2 + i / 9 % 2 : 1 + i / 9 % 4)
                                      : two_by_chance(chance, stages, i % 3 == 1);
    problem.measure = i % 2 == 0 ? OrderMeasure::Span : OrderMeasure::Step;
    const std::int64_t best = best_of_all(problem);
    if (best == std::numeric_limits<std::int64_t>::max()) continue;
    CAPTURE(i);
    PassWindows windows(problem);
    for (const bool both_orders : {false, true}) {
      std::int64_t effort = 100'000'000;
      CHECK_FALSE(windows.refutes(best, both_orders, effort));
      CHECK(effort > 0);
    }
    std::int64_t effort = 100'000'000;
    ++problems, refuted += windows.refutes(best - 1, true, effort);
  }
  CHECK(problems >= rounds(1150));
  CHECK(refuted >= problems * 8 / 10);
}

TEST_CASE(
    "finder: with cells of a forward and a backward: none of all orders beats the bound, and the best one is found") {
  Random chance(4);
  AgainstAllOrders all;
  int shorter = 0;
  for (int i = 0; i < rounds(600); ++i) {
    const int stages = 1 + i / 3 % 3;
    OrderProblem problem = i % 3 == 0   ? by_chance(chance, stages, stages == 3 ? 2 : 3)
                           : i % 3 == 1 ? two_by_chance(chance, stages, true)
                                        : two_by_chance(chance, 1, false, 2);
    if (i % 3 == 2) problem.cap[0] += number_between(chance, 0, 6);
    problem.measure = i % 2 == 0 ? OrderMeasure::Span : OrderMeasure::Step;
    const std::int64_t without = best_of_all(problem);
    with_cells(chance, problem, i % 4 == 0 ? 0 : 60);
    CAPTURE(i);
    if (!all.add(problem, 1000)) continue;
    CHECK(all.best <= without);
    CHECK(codes_of(problem, ops_of(problem, all.found.order.codes), shape_of_ops(problem).seating()) ==
          all.found.order.codes);
    shorter += all.best < without;
  }
  CHECK(all.problems >= rounds(590));
  CHECK(shorter >= all.problems / 3);
  CHECK(all.best_found >= all.problems * 8 / 10);
  CHECK(all.proven >= all.problems / 10);
}

}  // namespace pipewright::tests
