// A candidate of the search as `simulate` prices it: links shared, buffers counted.
#pragma once

#include <memory>
#include <vector>

#include "core/answers/ranking.hpp"
#include "planner/search/candidate.hpp"

namespace pipewright {

// A scenario with nothing open, priced: what every search shows of a plan.
struct Priced {
  Found found;
  Answer answer;
};
Priced priced(std::shared_ptr<const Scenario> own, const Layout& layout, Objective objective);

struct PricedPlan {
  Found found;
  std::vector<Bytes> buffers;  // by stage, what its fullest device needs beside what a walk over its ops counts
};

PricedPlan priced_plan(const Scenario& scenario, const Candidate& candidate, Objective objective);

}  // namespace pipewright
