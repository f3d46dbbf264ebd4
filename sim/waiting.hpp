// What ops wait for: the split of idle time, and the critical path.
#pragma once

#include <vector>

#include "core/answers/report.hpp"
#include "core/plan/op_index.hpp"

namespace pipewright {

// What an op needed from elsewhere and got last. A message was posted at the end of the op that made it; an all-reduce
// was posted when the unbroken run of all-reduces began that ends with it.
struct Cause {
  enum class Kind { None, Message, AllReduce };
  Kind kind = Kind::None;
  std::size_t index = 0;  // in Timeline::transfers, or in the worker's collective stream
  Time posted, arrived;
};

// Looks up causes. Built in one pass over transfers and ops; keeps references to its arguments.
class Causes {
 public:
  Causes(const Timeline& timeline, const Schedule& schedule, const StepCosts& costs);

  Cause of(WorkerId worker, std::size_t op) const;

  // An op of the last gradient of a round: the last BW or W (or B) of the chunk in that round; -1: none here.
  int last_backward(PositionId position, VirtualStageId v, std::uint32_t round) const;

  const OpIndex& index() const { return index_; }

 private:
  struct Ends {
    StageId stage = 0;
    std::size_t count = 0;                    // rounds per chunk
    std::vector<std::int32_t> all_reduce;     // [chunk here * count + round]: last op on the collective stream, or -1
    std::vector<std::int32_t> last_backward;  // likewise, on the compute stream
    std::size_t slot(const Seating& seating, VirtualStageId v, std::uint32_t round) const;
  };
  Ends ends_of(const Lane& lane, StageId stage) const;

  const Timeline& timeline_;
  const Schedule& schedule_;
  OpIndex index_;
  std::vector<std::size_t> first_op_;   // by worker
  std::vector<std::int32_t> transfer_;  // [first_op_[worker] + op]: the message that arrived last, or -1
  std::vector<Ends> ends_;              // by position
};

// Where the idle time of a worker went; sums to makespan - busy.     tests/sim/summarize_test.cpp "idle"
IdleSplit idle_split(const Causes& causes, const Timeline& timeline, WorkerId worker);

// From the op that ends last back to the start: at every op, what came last among the op before it on its stream, its
// message and its all-reduce. Parts of one kind are summed; they sum to the makespan, longest first.
std::vector<CriticalPart> critical_path(const Causes& causes, const Timeline& timeline, const Schedule& schedule,
                                        const StepCosts& costs);

}  // namespace pipewright
