#include "sim/schedules/offload.hpp"

#include <cstddef>
#include <set>
#include <utility>

namespace pipewright::sim {
namespace {

bool reads_activations(Kind kind) {
  return kind == Kind::R || rule(kind).backward;
}

bool read_soon(const Lane& lane, std::size_t forward) {
  for (std::size_t i = forward + 1; i < lane.compute.size() && i <= forward + 2; ++i)
    if (const Op& op = lane.compute[i], &of = lane.compute[forward];
        reads_activations(op.kind) && op.virtual_stage == of.virtual_stage && op.micro_batch == of.micro_batch)
      return true;
  return false;
}

}  // namespace

void offload(Schedule& schedule) {
  const std::vector<bool>& offloaded = schedule.shape.offloaded;
  for (Lane& lane : schedule.positions) {
    std::set<std::pair<VirtualStageId, std::uint32_t>> away;
    for (std::size_t i = 0; i < lane.compute.size(); ++i) {
      const Op& op = lane.compute[i];
      if (!offloaded[op.virtual_stage]) continue;
      const std::pair chunk{VirtualStageId{op.virtual_stage}, op.micro_batch};
      if (op.kind == Kind::F && !read_soon(lane, i)) {
        lane.communication[kOut].push_back({Kind::Offload, op.virtual_stage, op.micro_batch, 0});
        away.insert(chunk);
      } else if (reads_activations(op.kind) && away.erase(chunk) > 0) {
        lane.communication[kIn].push_back({Kind::Reload, op.virtual_stage, op.micro_batch, 0});
      }
    }
  }
}

}  // namespace pipewright::sim
