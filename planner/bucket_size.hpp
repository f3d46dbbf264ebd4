// Buckets of gradients that are too many for one run are made larger.
//
// A bucket is at least a layer, so small buckets are as many as there are layers with parameters:
//     all-reduces of a run = sum over chunks of buckets * members that are simulated * rounds
// (rounds: one, or under an asynchronous schedule one per micro-batch of a replica). Where these are more than `most`,
// `plan.bucket` doubles until they are not; one bucket per chunk is the end. 6 layers of 4 kB on 2 chunks, 4 copies,
// 10 rounds, buckets of 4 kB: 6 * 4 * 10 = 240; of at most 200 there are 160 with buckets of 8 kB.
// tests/planner/bucket_size_test.cpp
#pragma once

#include <cstdint>
#include <string>

#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::planner {

std::int64_t all_reduces(const Plan& plan, const Scenario& scenario, int simulated_copies);

void coarsen_buckets(Plan& plan, const Scenario& scenario, int simulated_copies, std::int64_t most);

// "", or one sentence: that the plan's buckets are larger than those that the scenario asks for.
std::string coarsened_buckets(const Plan& plan, const Scenario& scenario);

}  // namespace pipewright::planner
