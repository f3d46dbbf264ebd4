// Which layers of a stage keep their input only: the set that adds least to the backward and frees enough memory.
//
//     minimise   sum of extra_i                                    over sets S of items                [AdaPipe24]
//     such that  q * sum of freed_i  >=  over + max of transient_i
//
// An item is a layer (a block of a Transformer is one). extra: its forward, repeated right before its backward; freed:
// what it no longer keeps, per micro-batch in flight; transient: what it has rebuilt while its own backward runs, once;
// q: micro-batches in flight at the stage's peak, from the schedule; over: bytes by which the stage passes its device
// when nothing is rebuilt. [AdaPipe24] has the knapsack per stage and its q; that the largest rebuilt layer is in the
// constraint is ours: it is there at the peak, in the memory walk as in the simulation.
//
// Items (extra, freed, transient): (4, 10, 1), (3, 6, 1), (2, 5, 9); q = 2, over = 20: the first two free 32 >= 21 and
// add 7, the first and the third free 30 >= 29 and add 6; the last two free 22 < 29. Answer: 6.
// tests/planner/recompute_knapsack_test.cpp "by hand", and brute force over all subsets
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/units.hpp"

namespace pipewright::planner {

struct RebuildItem {
  Time extra;
  Bytes freed, transient;
};

struct RebuildSet {
  std::vector<int> items;  // ascending
  Time extra;
  // 0: no set adds less. Else: no set adds less on a device with `slack` bytes less (see below).
  Bytes slack;
};

// Walks the items by growing transient and keeps, of all sets so far, those that no other beats in both freed bytes and
// time (Nemhauser and Ullmann's lists); after each item the cheapest set that frees enough for the transient reached is
// a candidate, so that every allowed largest transient is looked at in one pass. Exact while the list stays below
// `most_states`, as it does for tens of items. A longer list is thinned: freed bytes are rounded down to a grid of
// (what must be freed) / (most_states / 2), which is safe; every thinning costs at most q times the grid, and `slack`
// is their sum. Nothing: even all items do not free enough, with any largest transient.
std::optional<RebuildSet> least_rebuild(std::span<const RebuildItem> items, std::int64_t in_flight, Bytes over,
                                        std::size_t most_states = std::size_t{1} << 14);

// The set that needs least memory: of all allowed largest transients t, all items up to t, where q * freed - t is most.
// Empty when no set frees anything.
RebuildSet most_freeing(std::span<const RebuildItem> items, std::int64_t in_flight);

}  // namespace pipewright::planner
