// Which of two plans is the better one, by the objective of a search; and what the devices of a plan cost.
#pragma once

#include <vector>

#include "planner/search/search.hpp"

namespace pipewright {

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

}  // namespace pipewright
