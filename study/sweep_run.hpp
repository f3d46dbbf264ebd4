// The points of a sweep, priced: by threads of this process, or by ranks, into a database where there is one.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>

#include "core/answers/loss_grid.hpp"
#include "core/answers/sweep.hpp"
#include "io/read/read_sweep.hpp"
#include "io/store/sweep_store.hpp"
#include "planner/what_if/sweep.hpp"
#include "study/sweep_ranks.hpp"

namespace pipewright::study {

// How every process prices its points: by so many threads, with `replan` each point in at most so many seconds.
SweepOptions pricing(const SweepFile& file, int threads, double seconds, std::function<bool()> stopped);

// What else than its file makes a sweep this one and no other; and both as a number that ranks compare.
std::string search_of(double seconds);
std::string hash_of(const SweepFile& file, double seconds);

// Why a point has no such figure: the key that it needs.
std::string lacking(const SweepFile& file, std::int64_t point, SweepFigure figure);

// The points of the shard that are not known, priced; the answer, with those that are. `store`, `ranks`: null where
// there are none.
Sweep swept(const SweepFile& file, const SweepShard& shard, SweepStore* store, int threads, double seconds,
            SweepRanks* ranks);

// `sweep --run`: every point of a grid, run for real.
struct TrainedGrid {
  LossGrid grid;              // over processes the losses are rank 0's alone
  std::string ended;          // who was asked to end, or ""
  std::exception_ptr failed;  // what ended all points, once what is there has been shown
};
// Whatever is wrong with one point is said in its row, and the others are run.
TrainedGrid train_grid(const SweepFile& file);

}  // namespace pipewright::study
