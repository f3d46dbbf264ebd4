// The rules by which ops depend on one another, as small tables for the engines: which edges feed a virtual stage, who
// receives a message, which backward ops belong to a round of all-reduce. See core/plan/schedule.hpp for the rules.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cost/step_costs.hpp"
#include "core/plan/schedule.hpp"

namespace pipewright {

class Wiring {
 public:
  Wiring(const Schedule& schedule, const StepCosts& costs);

  struct Chunk {
    std::vector<std::uint32_t> in, out;  // edges into and out of a virtual stage, ascending
    int stage = 0, replicas = 1;
    PositionId first_position = 0;
  };
  std::vector<Chunk> chunks;
  int copies = 1;
  int positions = 1;
  int micro_batches = 1;
  bool flush = true;
  bool replicated = false;  // any stage with more than one replica

  int workers() const { return copies * positions; }

  WorkerId worker_of(VirtualStageId v, CopyId copy, MicroBatchId m) const {
    const Chunk& chunk = chunks[static_cast<std::size_t>(v)];
    return copy * positions + chunk.first_position + (chunk.replicas == 1 ? 0 : m % chunk.replicas);
  }
  WorkerId receiver(const Edge& edge, Direction direction, CopyId copy, MicroBatchId m) const {
    return worker_of(direction == Direction::Forward ? edge.to : edge.from, copy, m);
  }

  // Rounds of all-reduce and update: one in a flush schedule, else one per `replicas` micro-batches.
  int rounds(VirtualStageId v) const;
  int round_of(const Op& backward) const;
  int members(VirtualStageId v) const { return copies * chunks[static_cast<std::size_t>(v)].replicas; }

  // Dense keys of (virtual stage, round, bucket), and of (worker, virtual stage, round).
  std::size_t meetings() const { return meetings_; }
  std::size_t meeting_key(VirtualStageId v, int round, int bucket) const;
  std::size_t gradient_keys() const { return gradient_keys_; }
  std::size_t gradient_key(WorkerId worker, VirtualStageId v, int round) const;

  // Ops that produce weight gradients (BW, W) by gradient_key.
  std::vector<std::int32_t> backwards_per_round(const Schedule& schedule) const;

 private:
  std::vector<std::size_t> first_meeting_, first_gradient_;
  std::vector<int> buckets_;
  std::size_t meetings_ = 0, gradient_keys_ = 0;
};

}  // namespace pipewright
