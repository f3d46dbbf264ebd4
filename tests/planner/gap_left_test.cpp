// What a search says that ended by itself above the gap asked for.
#include <limits>
#include <random>

#include <doctest/doctest.h>

#include "planner/search/reasons.hpp"
#include "tests/planner/small_spaces.hpp"

using namespace pipewright::tests;

namespace {

constexpr double kNoLayout = std::numeric_limits<double>::infinity();

Ranking of_gap(double gap) {
  Ranking answer;
  answer.plans.emplace_back();
  answer.plans.front().value = 1 + gap, answer.bound = 1;
  return answer;
}

}  // namespace

TEST_CASE("nothing is left of a gap that is reached, or that a limit explains") {
  CHECK(gap_left(of_gap(0), {.gap = 0}, {.given_up = kNoLayout}) == "");
  CHECK(gap_left(of_gap(0.009), {.gap = 0.01}, {.given_up = kNoLayout}) == "");
  Ranking ended = of_gap(0.5);
  ended.ended = Ended::TimeLimit;
  CHECK(gap_left(ended, {.gap = 0.01}, {.given_up = kNoLayout}) == "");
}

TEST_CASE("what is left of a gap is told by what has the least bound") {
  const Ranking answer = of_gap(0.02);
  Candidate lowest;
  lowest.layout.stages = 4;
  OpenBounds open{.lowest = &lowest, .lowest_bound = 1, .lowest_value = 1.02, .given_up = kNoLayout};
  const auto left = [&](const SearchOptions& options) { return gap_left(answer, options, open); };
  CHECK(left({.gap = 0.01}).starts_with("the cuts of a layout get 400 simulations (PP4"));
  CHECK(left({.gap = 0, .keep_going = true}).starts_with("the search for cuts came to the most prefixes"));
  lowest.layout.virtual_stages = 2;
  CHECK(left({.gap = 0, .keep_going = true}).starts_with("cuts of interleaved schedules are heuristic"));
  open.lowest_bound = open.lowest_value = 1;  // proven by fixed orders
  CHECK(left({.gap = 0}).find("links that several transfers share") != std::string::npos);
  open.given_up = 1;
  CHECK(left({.gap = 0}).starts_with("layouts of which no cut was found that fits"));
  CHECK(left({.objective = Objective::Memory, .gap = 0}).starts_with("the bound of the memory counts no buffers"));
}

TEST_CASE("a search reaches the gap asked for, proves its plan, or says what is left") {
  std::mt19937 random(5);
  int left = 0, proven = 0;
  for (int i = 0; i < 12; ++i) {
    CAPTURE(i);
    Scenario scenario = random_scenario(random, 8, 2);
    scenario.plan.open["schedule"].among = {i % 2 == 0 ? "interleaved_1f1b" : "1f1b"};
    if (i % 2 == 0) scenario.plan.open["virtual_stages"].among = {"2"};
    scenario.plan.open["stages"].among = {"2"};
    open(scenario, {"partition", "recompute"});
    const auto result = search(scenario, {.top = 1, .gap = 0, .time_limit = 600, .keep_going = true});
    if (!std::holds_alternative<SearchAnswer>(result)) continue;
    const SearchAnswer& answer = std::get<SearchAnswer>(result);
    CHECK(answer.ended == Ended::No);
    CHECK(answer.gap_left.empty() == answer.proven());
    (answer.proven() ? proven : left) += 1;
  }
  CHECK(left >= 1);
  CHECK(proven >= 1);
}
