#include "sim/schedules/gather_weights.hpp"

#include <algorithm>
#include <vector>

#include "core/check.hpp"
#include "sim/schedules/lists.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::sim {
namespace {

void add_to(Lane& lane, const Resharding& when) {
  std::vector<VirtualStageId> held, few;  // whole; in shards of when.over
  const auto first_reader = [&](auto from) {
    return std::find_if(from, lane.compute.end(), [](const Op& op) { return rule(op.kind).weights; });
  };
  for (auto op = first_reader(lane.compute.begin()); op != lane.compute.end();) {
    const auto here = std::find(held.begin(), held.end(), op->virtual_stage);
    if (here == held.end()) {
      const std::uint32_t from = std::erase(few, VirtualStageId{op->virtual_stage}) > 0 ? kFromFew : 0;
      lane.communication[kGathers].push_back({Kind::AllGather, op->virtual_stage, op->micro_batch,
                                              (static_cast<std::uint32_t>(pass_of(op->kind)) | from) & 0x7fffffffu});
      held.push_back(op->virtual_stage);
    }
    const auto next = first_reader(op + 1);
    const bool given_away = op->kind == Kind::F   ? when.after_forward
                            : op->kind == Kind::R ? false  // its backward follows
                                                  : when.after_backward;
    if (given_away && (next == lane.compute.end() || next->virtual_stage != op->virtual_stage)) {
      std::erase(held, VirtualStageId{op->virtual_stage});
      if (when.over > 0 && op->kind == Kind::F) few.push_back(op->virtual_stage);
    }
    op = next;
  }
}

}  // namespace

std::string gathering_refusal(const Schedule& schedule) {
  if (!schedule.flush) return schedule.name + " updates the weights of one stage while others run";
  if (const ScheduleRule* rule = find_schedule(schedule.name); rule != nullptr && rule->facts.uses_partner)
    return schedule.name + " moves the activations of whole stages";
  if (has_replicas(schedule.shape) || both_ways(schedule.shape.chunk_order))
    return "the holders of a chunk run different micro-batches, and gathers need all of them at a time";
  if (schedule.shape.data_parallel == 1) return "there is one copy, which holds all weights";
  return "";
}

void gather_weights(Schedule& schedule, const Resharding& when) {
  PP_CHECK(gathering_refusal(schedule).empty());
  for (Lane& lane : schedule.positions)
    add_to(lane, when);
}

}  // namespace pipewright::sim
