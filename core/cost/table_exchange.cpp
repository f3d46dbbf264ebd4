#include "core/cost/table_exchange.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace pipewright::core {
namespace {

// One chunk of each group of workers that hold the table, and holder i of every one of them.
AllReduceGroup group_of(const Plan& plan, const std::vector<VirtualStageId>& chunks, const CostModel& cost) {
  const Seating seating = plan.seating();
  std::map<StageId, VirtualStageId> of_workers;
  for (const VirtualStageId v : chunks)
    of_workers.try_emplace(seating.group_of(v), v);
  int fewest = seating.holders(chunks.front());
  for (const auto& [workers, v] : of_workers)
    fewest = std::min(fewest, seating.holders(v));
  DeviceGroups groups;
  for (CopyId copy = 0; copy < plan.copies(); ++copy)
    for (int holder = 0; holder < fewest; ++holder) {
      std::vector<DeviceId>& group = groups.emplace_back();
      for (const auto& [workers, v] : of_workers)
        group.push_back(plan.device[copy * plan.positions() + seating.position(v, holder)]);
    }
  const Cluster& cluster = cost.scenario().cluster;
  return AllReduceGroup::at_once(std::move(groups), cost.topology(), cluster.devices_per_node, &cluster);
}

Bytes bytes_of(const Plan& plan, const TiedTable& table, const Training& training) {
  const Bytes all{checked_product(table.parameters, gradient_bytes(training).value, "the size of a gradient")};
  const int shares = training.zero >= kGradientsSharded ? plan.sharded_over(StageId{0}) : 1;
  return {all.value / shares};
}

}  // namespace

TableExchange::TableExchange(const Plan& plan, const TiedTable& table, const CostModel& cost)
    : group_(group_of(plan, table.chunks, cost)), bytes_(bytes_of(plan, table, cost.scenario().training)) {}

}  // namespace pipewright::core
