#include "sim/schedules/copy_shards.hpp"

#include <set>

namespace pipewright::sim {

void copy_shards(Schedule& schedule) {
  for (Lane& lane : schedule.positions) {
    for (const Op& gather : lane.communication[kGathers])
      if (gather.bucket < kFromFew)
        lane.communication[kIn].push_back({Kind::Fetch, gather.virtual_stage, gather.micro_batch, gather.bucket});
    std::set<VirtualStageId> there;  // chunks of which the host has gradients
    for (const Op& reduce : lane.communication[kReductions]) {
      const bool adds = !there.insert(VirtualStageId{reduce.virtual_stage}).second;
      lane.communication[kOut].push_back({Kind::Store, reduce.virtual_stage, reduce.micro_batch, adds ? 1u : 0u});
    }
  }
}

}  // namespace pipewright::sim
