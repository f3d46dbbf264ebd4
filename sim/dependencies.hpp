// The rules by which ops of different workers depend on one another, as small tables for the engines: which edges feed
// a virtual stage, who receives a message, who takes part in a collective. See core/plan/schedule.hpp for the rules,
// and sim/stream_links for those between the streams of a worker.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"

namespace pipewright::sim {

// The schedule must stay as it is.
class Wiring {
 public:
  Wiring(const Schedule& schedule, const StepCosts& costs)
      : Wiring(schedule, costs.edges, schedule.shape.data_parallel) {}
  Wiring(const Schedule& schedule, const std::vector<Edge>& edges, int copies);

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
  int members(const Op& op) const {
    switch (kStreams[rule(op.kind).stream].among) {
      case Among::Worker: return 1;
      case Among::Tied: return copies * static_cast<int>(with_table_[op.bucket].size());
      case Among::All: return workers();
      case Among::Holders: break;
    }
    return seating_.members(op.virtual_stage);
  }
  void for_each_member(const Op& op, WorkerId worker, const auto& use) const {
    const Among among = kStreams[rule(op.kind).stream].among;
    if (among == Among::Worker) return use(worker);
    const Chunk& chunk = chunks[op.virtual_stage];
    for (CopyId copy = 0; copy < copies; ++copy) {
      const WorkerId first = copy * positions;
      if (among == Among::All)
        for (PositionId position = 0; position < positions; ++position)
          use(WorkerId{first + position});
      else if (among == Among::Tied)
        for (const PositionId position : with_table_[op.bucket])
          use(WorkerId{first + position});
      else
        for (int holder = 0; holder < chunk.holders; ++holder)
          use(WorkerId{first + seating_.position(op.virtual_stage, holder, chunk.first)});
    }
  }
  // A number of those who run an op of a worker's stream together, below `groups()`.
  std::size_t group(const Op& op, WorkerId worker) const {
    switch (kStreams[rule(op.kind).stream].among) {
      case Among::Worker: return at(worker);
      case Among::Tied: return op.bucket;
      case Among::All: return 0;
      case Among::Holders: break;
    }
    return at(group_at_[at(worker % positions)]);
  }
  std::size_t groups() const { return std::max(at(workers()), with_table_.size()); }

 private:
  Seating seating_;                                  // of a schedule that stays
  std::vector<std::vector<PositionId>> with_table_;  // by table that several hold
  std::vector<StageId> group_at_;                    // by position
};

}  // namespace pipewright::sim
