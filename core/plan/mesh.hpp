// Which devices communicate with one another: devices in a grid, and the groups along its axes. The first axis varies fastest,
// as in Megatron-LM's "tp-cp-ep-dp-pp" (rank = tp + t (cp + c (dp + D pp))) and in torchtitan's meshes, last name first.
//
// The devices of a stage form two grids, of which neither knows the other:
//
//     dense      tensor t, context c, data D              rings of attention, tensor-parallel groups, sums of gradients
//     experts    parts x of an expert, experts e, copies  exchanges of tokens, sums of the experts' gradients  [Megatron26]
//
// t = 2, c = 2, D = 2 on devices 0 to 7: tensor {0, 1}, context {0, 2}, data {0, 4}, context and data {0, 2, 4, 6}, and so on.
// x = 1, e = 4 on the same: experts {0, 1, 2, 3}, copies {0, 4}; x = 2, e = 2: parts {0, 1}, experts {0, 2}, copies {0, 4}.
//                                                                                                 tests/core/mesh_test.cpp
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/cluster/topology.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::core {

enum class Axis : std::uint8_t {
  Tensor,   // devices of a worker
  Inner,    // of a context-parallel group: those that exchange heads (two_level), and rings over such groups
  Ring,     //
  Shard,    // workers that divide the states of a chunk; and those that hold the same shard (hybrid sharding)  [FSDP23]
  Replica,  //
  Part,  // devices that share an expert; sets of them, which hold all experts between them; and those that hold the same
  Expert,  //
  Copy,    //
};

class Mesh {
 public:
  struct Length {
    Axis axis;
    std::int64_t size;
  };
  // As many devices as the sizes multiply to.
  Mesh(std::vector<DeviceId> devices, std::vector<Length> lengths);

  // The devices of a group differ along these axes alone. Groups in the order of their first devices, members in theirs.
  DeviceGroups along(std::initializer_list<Axis> axes) const;

 private:
  std::vector<DeviceId> devices_;
  std::vector<Length> lengths_;
};

// The t devices of each worker, which follow its lead.
std::vector<DeviceId> with_members(const std::vector<DeviceId>& leads, int t);

// Where a worker lies among those of all copies, if no list of devices says so. Workers that share a sequence are neighbours.
// Two stages, D = 2, pipeline: copy 0 on 0 and 1, copy 1 on 2 and 3; data: stage 0 on 0 and 1, stage 1 on 2 and 3.
std::int64_t seat_of(PlacementOrder order, std::int64_t copy, std::int64_t position, std::int64_t copies,
                     std::int64_t positions, std::int64_t context);

// Of a plan with t, c, D and K settled: leads of the workers of stage 0, one per copy. Empty where no such plan can be placed,
// which whoever makes it refuses.
std::vector<DeviceId> leads_of_first_stage(const PlanRequest& plan, const Cluster& cluster);

}  // namespace pipewright::core
