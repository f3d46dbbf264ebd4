// What ops wait for: the split of idle time, and the critical path.
#pragma once

#include <vector>

#include "core/answers/report.hpp"
#include "core/plan/op_index.hpp"
#include "sim/stream_links.hpp"

namespace pipewright::sim {

// What an op needed from elsewhere and got last. A message was posted at the end of the op that made it; a collective
// was posted when the unbroken run of collectives began that ends with it.
struct Cause {
  enum class Kind { None, Message, Collective };
  Kind kind = Kind::None;
  std::size_t index = 0;  // in Timeline::transfers, or in the worker's communication stream
  Time posted, arrived;
  StreamId stream = 0;
};

// Looks up causes. Built in one pass over transfers and ops; keeps references to its arguments.
class Causes {
 public:
  Causes(const Timeline& timeline, const Schedule& schedule, const StepCosts& costs);

  Cause of(WorkerId worker, std::size_t op) const;

  // What let an op of a communication stream begin, as far as this position is concerned; nullptr: nothing had to.
  const StreamLinks::Trigger* trigger(PositionId position, StreamId stream, std::size_t communication) const;
  const StreamLinks& links(PositionId position) const { return links_[at(position)].all; }

  const OpIndex& index() const { return index_; }

 private:
  void join_cells();

  struct Links {
    StreamLinks all;
    ByStream<std::vector<std::int32_t>> trigger;  // by op of a stream: in all.triggers, or -1
  };

  const Timeline& timeline_;
  const Schedule& schedule_;
  OpIndex index_;
  std::vector<std::size_t> first_op_;   // by worker
  std::vector<std::int32_t> transfer_;  // [first_op_[worker] + op]: the message that arrived last, or -1
  std::vector<Links> links_;            // by position
};

// Where the idle time of a worker went; sums to makespan - busy.     tests/sim/summarize_test.cpp "idle"
IdleSplit idle_split(const Causes& causes, const Timeline& timeline, WorkerId worker);

// From the op that ends last back to the start: at every op, what came last among the op before it on its stream, its
// message and its all-reduce. Parts of one kind are summed; they sum to the makespan, longest first.
std::vector<CriticalPart> critical_path(const Causes& causes, const Timeline& timeline, const Schedule& schedule,
                                        const StepCosts& costs);

}  // namespace pipewright::sim
