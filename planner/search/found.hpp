// Plans that a search finds: which of two is the better one by its objective, what their devices cost, and a candidate
// as `simulate` prices it: links shared, buffers counted.
#pragma once

#include <memory>
#include <vector>

#include "core/answers/ranking.hpp"
#include "planner/search/candidate.hpp"
#include "planner/search/search.hpp"

namespace pipewright::planner {

// Plans whose values differ by so little, but by no more than the gap, are told apart by their devices: the one that
// has fewer is the better one. Of the least memory there are no ties.
//     100 samples/s on 64 devices and 99.95 on 56: the latter; with a gap of 0, the former
double tie(const SearchOptions& options);
// By value, and of equal ones by time per sample.
bool is_better(const Found& a, const Found& b);
// Ranking::plans, sorted by value: of those that tie with the first the one with the fewest devices becomes the first.
// By memory the first stays: of equal needs it is the faster one.
void prefer_fewer_devices(std::vector<Found>& plans, const SearchOptions& options);

// What a plan is worth by the objective, from its step time and its memory.
double objective_value(Objective objective, const Layout& layout, const Scenario& scenario, Time step, Bytes need);

// Per hour: the sum over the plan's devices, each at the price of its class, or that of `campaign:`; where no class has one, 3600
// each, so that cost is device seconds. Two devices of price 3 and one of price 1: 7.
//                                                                                   tests/planner/class_search_test.cpp
double price_per_hour(const Plan& plan, const Scenario& scenario);

// Throws InputError where some classes have a price and others have none: they could not be compared.
void check_prices(const Scenario& scenario);

// A scenario with nothing open, priced: what every search shows of a plan.
struct Priced {
  Found found;
  Answer answer;
};
Priced priced(std::shared_ptr<const Scenario> own, const Layout& layout, Objective objective);

struct PricedPlan {
  Found found;
  std::vector<Bytes> buffers;  // by stage, what its fullest device needs on top of what a walk over its ops counts
};

PricedPlan priced_plan(const Scenario& scenario, const Candidate& candidate, Objective objective);

}  // namespace pipewright::planner
