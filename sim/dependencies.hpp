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
    StageId group = 0;                   // of the workers that hold it
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
  int members(StreamId stream, VirtualStageId v) const { return kStreams[stream].alone ? 1 : seating_.members(v); }
  void for_each_member(StreamId stream, VirtualStageId v, WorkerId worker, const auto& use) const {
    if (kStreams[stream].alone) return use(worker);
    const Chunk& chunk = chunks[at(v)];
    for (CopyId copy = 0; copy < copies; ++copy)
      for (int holder = 0; holder < chunk.holders; ++holder)
        use(copy * positions + seating_.position(v, holder, chunk.first));
  }

 private:
  Seating seating_;  // of a schedule that stays
};

}  // namespace pipewright::sim
