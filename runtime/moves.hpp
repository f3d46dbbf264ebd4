// Activations that wait elsewhere between a forward and its backward: in the memory of the partner's stage (bpipe), or of
// the host (plan.offload_layers). What waits are the blocks that the forward leaves. What it has received stays in its slot:
// no sender may ever have to wait, so that a stage needs as many slots as without moves.
//
//     out     behind the forward, in a thread beside; its blocks are given back when the op begins that waits for it
//             (core/plan/moved.hpp)
//     back    likewise, into blocks that are taken when the op begins before the first reader
//     there   in a slot at the partner, or in the host's memory, from the forward's end to the begin of its first reader
//
// A partner has no op of its own in this: who sends knows which slots are free.
//     4 stages, 8 micro-batches: 2, 4 and 6 of stage 0 wait in two slots at stage 3    tests/runtime/moves_test.cpp
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/moved.hpp"
#include "runtime/chunk_code.hpp"

namespace pipewright::runtime {

struct RunPlan;

// What a worker's op list moves.
struct RunMoves {
  Moved at;
  int channel = -1;                // to the partner; -1: to the host, or there is nothing to move
  int slots = 0;                   // most that are away at once
  std::int64_t bytes = 0;          // of the largest
  std::vector<std::int32_t> slot;  // of each offload
};

// One block, and where it lies in what is moved.
struct MovedPart {
  int block = -1;
  std::int64_t offset = 0, bytes = 0;
};
std::vector<MovedPart> moved_parts(const RunPlan& run, const Op& move);

// Fills RunPlan::moves.
void find_moves(RunPlan& run);
// The channels of what goes to partners, behind those between stages.
void add_move_channels(RunPlan& run);

}  // namespace pipewright::runtime
