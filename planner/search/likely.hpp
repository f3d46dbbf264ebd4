// Layouts that are likely to fit and to be fast: where a space is large, they are looked at before bounds lead anywhere.
#pragma once

#include <vector>

#include "planner/search/candidate.hpp"
#include "planner/search/space.hpp"

namespace pipewright::planner {

// From how many layouts on that is worth it.
constexpr std::int64_t kLargeSpace = std::int64_t{1} << 15;

// Of groups that use nearly all devices with the smallest micro-batch, and whose states leave much of a device to what
// is kept for the backward: best bound first, a few of each group.
std::vector<Layout> likely_layouts(const Space& space, Evaluator& evaluator);

}  // namespace pipewright::planner
