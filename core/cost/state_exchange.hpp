// What the copies of a stage exchange of its gradients and weights, as training.zero and plan.shard say:
//
//   zero 0      all-reduce of the gradients over all that hold the chunk
//   zero 1      reduce-scatter of the gradients and, behind the update, all-gather of the weights; priced as one
//   zero 2, 3   reduce-scatter of the gradients; the weights are gathered where they are read                  [ZeRO20]
//
// With fewer copies in a group than there are (hybrid sharding), scatter and gather run inside the groups, and what each
// member then holds is all-reduced with those that hold the same in the other groups.         [FSDP23] section 3.2.2
// Copies that follow one another form a group. Four copies on two nodes of two, shard: 2: groups {0, 1} and {2, 3}, rings
// {0, 2} and {1, 3} between them.                        tests/planner/sharding_test.cpp "hybrid sharding"
#pragma once

#include <array>
#include <optional>
#include <span>

#include "core/cost/collectives.hpp"
#include "core/cost/cost_model.hpp"

namespace pipewright {

class StateExchange {
 public:
  StateExchange(const Plan& plan, StageId stage, const CostModel& cost);

  Collective reduce(Bytes gradients) const;  // of a bucket
  Collective gather(Bytes weights) const;    // of a chunk whose weights are sharded, or that are whole between updates
  void keep_links(const Fold& fold);
  // Those that communicate: inside the groups, and between them where there are several.
  std::span<const AllReduceGroup> groups() const { return groups_; }

 private:
  std::optional<Collective> measured(std::size_t group, Bytes bytes, int halves) const;
  Collective gathering(Bytes bytes) const;  // or scattering, inside a group
  Collective all_reduce(std::size_t group, Bytes bytes) const;

  const CostModel& cost_;
  double gathered_weight_bytes_;  // per parameter
  std::vector<AllReduceGroup> groups_;
};

}  // namespace pipewright
