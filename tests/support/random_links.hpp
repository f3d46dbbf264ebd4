// Random schedules, and links under random prices: what the event queue needs beside random_costs.hpp.
#pragma once

#include <random>

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"

namespace pipewright::tests {

// A schedule of the table for a random small shape: replicas, copies, chunks, recomputation, buckets. Of those in both
// directions every third is the schedule "file", whose micro-batches are dealt by a list.
Schedule random_schedule(std::mt19937& random);

enum class LinkLayout {
  Private,  // one link per channel and per stage's all-reduce: nothing meets
  Shared,   // three links, all transfers and all-reduces meet on them
};

// Gives every message a route, and every all-reduce up to three phases, over links of 1 byte per nanosecond: n bytes
// take n ns, so that the prices stay as they are for a transfer that is alone (all-reduces are priced anew).
void add_links(StepCosts& costs, std::mt19937& random, LinkLayout layout);

}  // namespace pipewright::tests
