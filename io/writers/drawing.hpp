// What all drawings of a timeline share: how an op looks, what a worker is called, which rows are shown of many.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/answers/report.hpp"

namespace pipewright::io {

// The answer with the timelines of all copies that are drawn: unfolded only where it has to be. An InputError where
// that is too much to hold.                                   tests/planner/folding_test.cpp "too many ops to draw"
class DrawnCopies {
 public:
  enum class Of {
    All,
    Distinct
  };  // Distinct: of copies that all run the same copy 0 alone, as distinct_workers has it
  DrawnCopies(const Answer& simulated, Of of);
  const Answer& answer() const { return whole_ ? *whole_ : simulated_; }

 private:
  const Answer& simulated_;
  std::optional<Answer> whole_;
};

// How ops are told apart in pictures, in the order of the legend.
enum class Look { Forward, Backward, WeightGradient, Recompute, Update, AllReduce, AllGather, Move, Idle };
constexpr int kLooks = 9;
Look look(Kind kind);
std::string_view words(Look look);  // "forward", "backward", "weight gradient", ...

// "stage 0", "stage 0 r3" (replica 3), "copy 1 stage 0 r3" (second copy of the pipeline).
std::string worker_name(const Answer& answer, WorkerId worker);

const Lane& lane(const Answer& answer, WorkerId worker);

// At most `cap` of 0 .. count-1: all, or evenly spread with both ends.
std::vector<int> spread(int count, int cap);

// Workers worth a row of a drawing: those of every copy of the pipeline, or of copy 0 alone when all copies have the
// same times.
std::vector<WorkerId> distinct_workers(const Answer& answer);

// Rows of a drawing that has room for `cap`: all of these, or evenly spread ones, and always what holds the memory
// peak, in place of its neighbour. tests/io/writers_timeline_test.cpp "the stage of the memory peak"
std::vector<WorkerId> drawn_workers(const Answer& answer, int cap);
std::vector<StageId> drawn_stages(const Answer& answer, int cap);

// "16 of 64 workers are drawn, evenly spread; both copies run the same"; "" when every worker is drawn.
std::string not_drawn(const Answer& answer, const std::vector<WorkerId>& drawn);
// "evenly spread", and of rows that are not: "evenly spread, and the fullest".
std::string how_spread(int count, const std::vector<int>& shown);

// Whether a kind of work takes time anywhere.
bool occurs(const Answer& answer, Look look);

// The same, with `wanted` among them (in place of none: the list may grow by their number).
std::vector<int> spread(int count, int cap, const std::vector<int>& wanted);

// "0-5", "0-2, 12-14": layers of a stage, chunk by chunk.
std::string layer_ranges(const std::vector<LayerRange>& ranges);

// "4 stages · 8 micro-batches of 32 · 1f1b · NAME (24 layers) on 4 × DEVICE": the question in one line.
// Of a real run it ends with "measured on" and the machine.
std::string question(const Answer& answer);
// The same with the devices that have nothing to do, and what would use them: the first line of an answer.
std::string headline(const Answer& answer);
// " of 80.0 GiB"; "" where memory has no bound, as in a real run without a cap.
std::string of_capacity(Bytes capacity);
// Whether the times are those of a real run, and so say nothing of the scenario's devices.
bool is_measured(const Answer& answer);

// Number of compute and collective ops of all workers.
std::size_t op_count(const Answer& answer);

// Which of these workers' rows are followed by one for each communication stream: the members of a collective run it at
// the same time, so it is drawn once, below the last of them. Where no such op takes any time there is none.
ByStream<std::vector<bool>> stream_rows(const Answer& answer, const std::vector<WorkerId>& shown);

}  // namespace pipewright::io
