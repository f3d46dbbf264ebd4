// What a slice of a sequence takes and holds, of its micro-batch (plan.slices).              [Seq1F1B24] section 3.3
//
//     balanced   slices of equal FLOPs take 1/S of every pass
//     even       slices of equal tokens: of a pass that takes T, of which causal attention has the share a, slice i takes
//                    round(T e(i+1)) - round(T e(i)),   e(i) = (1 - a) i/S + a p(i)
//                p(i): of all pairs of query and key, those of the slices before i; without a window (i/S)^2, but for the
//                half of the diagonal, so that slice i has (2i + 1)/S^2 of attention. Together they take T, to the nanosecond.
//
// T = 100 ns, a = 0.4, S = 2: 0.6 / 2 + 0.4 / 4 = 0.4, so 40 ns and 60 ns.                 tests/planner/slices_test.cpp
//
// Sizes are 1/S each: activations, messages and what is kept follow tokens. Keys and values, which later slices of the
// micro-batch read, are part of what a slice keeps for its backward, and its backward follows theirs.
//                                                                 tests/planner/slices_test.cpp "keys and values"
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/cost/cost_model.hpp"

namespace pipewright::core {

// Of the work of a layer's attention, p at a place in the sequence: what its first tokens take, `part` of them all.
double attention_of_first(const Work& work, double part);

// The share a of attention in a pass whose slices take these times, by least squares; 0 where all have as much of it.
//     two slices without a window, 40 and 60 ns: 0.4                                       tests/core/profile_test.cpp "slices"
double attention_share_of(const Work& work, const std::vector<double>& slices);

// `costs`: of micro-batches of so many samples. `slice`: which one, where they take unequal times; none: their mean.
void cut_into_slices(LayerCosts& costs, const Scenario& scenario, const CostSource& source, std::int64_t samples,
                     std::optional<int> slice);

}  // namespace pipewright::core
