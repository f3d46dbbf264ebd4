// A schedule that somebody else wrote: the order of forwards and backwards of every worker, as a file gives it.
//
// The rule "file" of sim/schedules makes a Schedule of it: recomputations, all-reduces and updates are put in where
// every other schedule has them. io/import/schedule_csv.hpp reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.hpp"
#include "core/plan/schedule.hpp"

namespace pipewright::core {

constexpr std::string_view kGivenSchedule = "file";  // the name of its schedule, and the key in YAML

struct GivenSchedule {
  std::string file;                    // as messages show it; "": built in code
  int stages = 1, virtual_stages = 1;  // K workers ("ranks"), each with as many chunks ("stages" of PyTorch)
  int micro_batches = 1;               // M
  ChunkOrder chunk_order = ChunkOrder::Loop;
  int pipelines = 2;                     // P, both ways
  std::optional<Dealing> dealing;        // Listed
  std::vector<std::vector<Op>> compute;  // per worker: F, B, W, BW
  struct Cell {
    int line = 0, column = 0;  // where it stands in the file, from 1
  };
  std::vector<std::vector<Cell>> cells;  // of every op; empty: built in code
  std::int64_t derived = 0;              // cells about messages, sharding and gradients: left out, since derived

  std::int64_t overlapped() const;  // cells that ask for several ops at a time, here one after the other
  Place place(std::size_t worker, std::size_t op) const;
  Seating seating() const {
    return {stages, virtual_stages, chunk_order, micro_batches, 1, {}, 1, pipelines, dealing ? &*dealing : nullptr};
  }
};

// Sets K, v, M and the order of the chunks from the lists, and checks them: every chunk on one worker, as many on each,
// in an order that is known; every micro-batch once through every chunk, forward, then backward in one piece or in two;
// no deadlock. Throws InputError at the cell that is wrong: a deadlock names who waits for whom.
// Pipelines in opposite directions are sets of K stages each: 0 .. K - 1 on ranks 0 .. K - 1, and K .. 2 K - 1 on ranks
// K - 1 .. 0, or more of both (Seating, InTurns). They become chunks 0 .. K - 1, with the rule that deals micro-batches to
// them as the file does: BothWays (DualPipe), InTurns (Chimera), Alternate (GEMS), or Listed where none does.
//     0F0 0B0 0F1 0B1 and 1F0 1F1 1B0 1B1: 0B0 waits for 1B0, 1F1 before it for 0F1, and that stands behind 0B0
//                                             tests/io/schedule_csv_test.cpp "A deadlock names who waits for whom"
void settle(GivenSchedule& given);

}  // namespace pipewright::core
