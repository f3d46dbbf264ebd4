// A candidate of the search as `simulate` prices it: links shared, buffers counted.
#pragma once

#include <vector>

#include "core/plan/ranking.hpp"
#include "planner/search/candidate.hpp"

namespace pipewright {

struct PricedPlan {
  Found found;
  std::vector<Bytes> buffers;  // by stage, what its fullest device needs beside what a walk over its ops counts
};

PricedPlan priced_plan(const Scenario& scenario, const Candidate& candidate, Objective objective);

}  // namespace pipewright
