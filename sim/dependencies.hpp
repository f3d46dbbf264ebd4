// The rules by which ops of different workers depend on one another, as small tables for the engines: which edges feed
// a virtual stage, who receives a message, who takes part in a collective. See core/plan/schedule.hpp for the rules,
// and sim/stream_links for those between the streams of a worker.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"

namespace pipewright::sim {

// The schedule must stay as it is.
class Wiring {
 public:
  Wiring(const Schedule& schedule, const StepCosts& costs);

  struct Chunk {
    std::vector<std::uint32_t> in, out;  // edges into and out of a virtual stage, ascending
    PositionId first = 0;                // of its first holder
    int holders = 1;
    bool one_holder() const { return holders == 1; }
  };
  std::vector<Chunk> chunks;
  int copies = 1;
  int positions = 1;
  int micro_batches = 1;
  bool replicated = false;  // any chunk with more than one holder

  int workers() const { return copies * positions; }

  WorkerId worker_of(VirtualStageId v, CopyId copy, MicroBatchId m) const {
    const Chunk& chunk = chunks[at(v)];
    if (chunk.one_holder()) return copy * positions + chunk.first;
    return copy * positions + seating_.position(v, seating_.holder_of(v, m), chunk.first);
  }
  WorkerId receiver(const Edge& edge, Direction direction, CopyId copy, MicroBatchId m) const {
    return worker_of(direction == Direction::Forward ? edge.to : edge.from, copy, m);
  }

  // Who takes part in an op of a stream of `worker`.
  int members(StreamId stream, VirtualStageId v) const {
    switch (kStreams[stream].among) {
      case Among::Worker: return 1;
      case Among::Tied: return copies * static_cast<int>(tied_.size());
      case Among::Holders: break;
    }
    return seating_.members(v);
  }
  void for_each_member(StreamId stream, VirtualStageId v, WorkerId worker, const auto& use) const {
    if (kStreams[stream].among == Among::Worker) return use(worker);
    const Chunk& chunk = chunks[at(v)];
    const bool tied = kStreams[stream].among == Among::Tied;
    for (CopyId copy = 0; copy < copies; ++copy)
      for (int i = 0, count = tied ? static_cast<int>(tied_.size()) : chunk.holders; i < count; ++i)
        use(copy * positions + (tied ? tied_[at(i)] : seating_.position(v, i, chunk.first)));
  }
  // A number of those who run the ops of a worker's stream together, below that of all workers.
  std::size_t group(StreamId stream, WorkerId worker) const {
    switch (kStreams[stream].among) {
      case Among::Worker: return at(worker);
      case Among::Tied: return 0;
      case Among::Holders: break;
    }
    return at(group_at_[at(worker % positions)]);
  }

 private:
  Seating seating_;                // of a schedule that stays
  std::vector<PositionId> tied_;   // that hold a table which others hold, too
  std::vector<StageId> group_at_;  // by position
};

}  // namespace pipewright::sim
