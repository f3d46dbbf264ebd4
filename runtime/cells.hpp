// Ops that a worker runs at once (plan.pairs: fused): while rows of one are under way to experts and back, it computes
// another.
//
// A line's instructions fall into parts, each up to where the op waits for rows of others. The ops of a cell take turns,
// a part each; ops of one micro-batch in one chunk, as a backward behind its recomputation, and those that add to the same
// gradients follow one another: a thread. What is sent arrives in the order of the turns, as all members of a group have the same cells.
//     F: a [send] wait b,  B: c [send] wait d      runs as a [send] c [send] wait b wait d
//                                                         tests/runtime/experts_test.cpp "pairs"
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/run_plan.hpp"

namespace pipewright::runtime {

// How many ops of the list run at once, from `first` on: one, unless the plan's pairs are fused.
std::size_t cell_size(const RunPlan& run, const Lane& lane, std::size_t first);

// Instructions [begin, end) of an op's line.
struct CellPart {
  std::size_t op, begin, end;
};
// Of so many ops from `first` on, in the order in which they run.
std::vector<CellPart> parts_of_cell(const RunPlan& run, const Lane& lane, std::size_t first, std::size_t count);

// Threads of the widest cell: so many times a worker sends rows before it reads any.
std::size_t most_threads(const RunPlan& run);

}  // namespace pipewright::runtime
