// What the copies of a stage exchange of its gradients and weights, as training.zero and plan.shard say:
//
//   zero 0      all-reduce of the gradients over all that hold the chunk
//   zero 1      reduce-scatter of the gradients; all-gather of the weights that each has updated its part of: behind the
//               update, or beside the next step's forwards                                               [ZeRO20]
//   zero 2, 3   reduce-scatter of the gradients; the weights are gathered where they are read                  [ZeRO20]
//
// With fewer copies in a group than there are (hybrid sharding), scatter and gather run inside the groups, and what each
// member then holds is all-reduced with those that hold the same in the other groups.         [FSDP23] section 3.2.2
// Gradients and weights of experts that only some devices hold (plan.expert_parallel) are exchanged with those that hold the
// same, behind the others: of n devices of a stage, e x apart. 16 devices, e x = 4: {0, 4, 8, 12}, ...   [Megatron26]
//                                                                        tests/core/expert_exchange_test.cpp
// Shards that are kept after a forward (plan.reshard_after_forward as a number m) are gathered among m members that follow
// one another: of 8 with m = 4 {0, 1, 2, 3} and {4, 5, 6, 7}.  tests/planner/sharding_test.cpp "shards of few"
// Copies that follow one another form a group. Four copies on two nodes of two, shard: 2: groups {0, 1} and {2, 3}, rings
// {0, 2} and {1, 3} between them.                        tests/planner/sharding_test.cpp "hybrid sharding"
#pragma once

#include <array>
#include <optional>
#include <span>

#include "core/cost/collectives.hpp"
#include "core/cost/cost_model.hpp"

namespace pipewright::core {

class StateExchange {
 public:
  StateExchange(const Plan& plan, StageId stage, const CostModel& cost);

  // Bytes of a bucket, or of a chunk: all, and of experts.
  struct Share {
    Bytes all, of_experts;
  };
  Collective reduce(Share gradients) const;
  Collective gather(Share weights) const;         // of a chunk whose weights are sharded, or updated in parts
  Collective gather_of_few(Bytes weights) const;  // likewise, from shards of Resharding::over members
  void keep_links(const Fold& fold);
  // Those that communicate: inside the groups, and between them where there are several; then those of the experts, or of
  // Resharding::over members, which do not go together.
  std::span<const AllReduceGroup> groups() const { return groups_; }

 private:
  std::optional<Collective> measured(std::size_t group, Bytes bytes, int halves) const;
  Collective gathering(std::size_t group, Bytes bytes) const;  // or scattering, inside a group
  Collective all_reduce(std::size_t group, Bytes bytes) const;
  Collective reduce_dense(Bytes gradients) const;
  Collective reduce_experts(Bytes gradients) const;

  const CostModel& cost_;
  std::size_t dense_ = 0;  // groups before those of the experts
  std::vector<AllReduceGroup> groups_;
};

// Weights of a stage on one device, as they are gathered: of layers that are trained in part what is trained, where the
// rest lies whole.
StateExchange::Share gathered_weights(const Plan& plan, StageId stage, LayerRange layers, const Scenario& scenario);
// Of layers of a chunk of the plan, with the copies of tables that they bring.
StateExchange::Share gathered_with_copies(const Plan& plan, VirtualStageId v, LayerRange layers,
                                          const Scenario& scenario);

// One number of 4 bytes over all devices of the plan, of all copies: too small to slow what else is on its links. Eight devices
// 1 us apart, two trees: 2 * 3 us.                                                        tests/planner/barrier_test.cpp
Collective norm_of_gradients(const Plan& plan, const CostModel& cost);

// Whether a chunk's weights are gathered as one, and room for what is gathered, so or beside forwards.
bool gathers_chunks(const StepCosts& costs, const Plan& plan);
void resize_gathers(StepCosts& costs, const Plan& plan);

}  // namespace pipewright::core
