// The dynamic program of suffix_dp.hpp on devices of several classes; call it through suffix_dp().
#pragma once

#include <vector>

#include "planner/partitioners/suffix_dp.hpp"

namespace pipewright::planner {

// O(L^2 N1 N2 N3 R) for Nc devices of class c, times 2 classes (once more times their number on two levels of links,
// where a stage's messages depend on the classes of its neighbours), times `stages` where given. One class: the same
// bottleneck as suffix_dp.
SuffixAnswer suffix_dp_on_classes(const SuffixProblem& problem);
std::vector<SuffixAnswer> suffix_dp_on_classes_by_stages(const SuffixProblem& problem, int most_stages);

}  // namespace pipewright::planner
