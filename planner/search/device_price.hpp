// What the devices of a plan cost per hour, for the objective `cost`.
#pragma once

#include "core/plan/plan.hpp"
#include "core/plan/scenario.hpp"

namespace pipewright {

// The sum over the plan's devices, each at the price of its class, or that of `campaign:`; where no class has one, 3600
// each, so that cost is device seconds. Two devices of price 3 and one of price 1: 7.
//                                                                                   tests/planner/class_search_test.cpp
double price_per_hour(const Plan& plan, const Scenario& scenario);

// Throws InputError where some classes have a price and others have none: they could not be compared.
void check_prices(const Scenario& scenario);

}  // namespace pipewright
