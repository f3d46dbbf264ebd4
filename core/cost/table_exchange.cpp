#include "core/cost/table_exchange.hpp"

#include <map>
#include <set>
#include <utility>

#include "core/plan/tied_tables.hpp"

namespace pipewright::core {
namespace {

// Of each copy of the pipeline, the workers that hold a tied chunk.
AllReduceGroup group_of(const Plan& plan, const std::vector<VirtualStageId>& tied, const CostModel& cost) {
  std::set<PositionId> holders;
  for (const VirtualStageId v : tied)
    for (const PositionId position : places(plan.seating(), v))
      holders.insert(position);
  DeviceGroups groups;
  for (CopyId copy = 0; copy < plan.copies(); ++copy) {
    std::vector<DeviceId>& group = groups.emplace_back();
    for (const PositionId position : holders)
      group.push_back(plan.device[copy * plan.positions() + position]);
  }
  const Cluster& cluster = cost.scenario().cluster;
  return AllReduceGroup::at_once(std::move(groups), cost.topology(), cluster.devices_per_node, &cluster);
}

Bytes bytes_of(const Plan& plan, const Scenario& scenario) {
  const Model& model = scenario.model;
  std::map<LayerId, std::int64_t> tables;  // by the layer that owns it
  for (VirtualStageId v = 0; v < plan.chunks(); ++v)
    for (LayerId id = plan.layers[v].begin; id < plan.layers[v].end; ++id)
      if (const std::int64_t copied = table_copied(plan, model, v, id); copied > 0)
        tables[model.layers[id].tied_to] = copied;
  std::int64_t parameters = 0;
  for (const auto& [owner, table] : tables)
    parameters = checked_sum(parameters, table, "the parameters");
  const int shares = scenario.training.zero >= kGradientsSharded ? plan.sharded_over(StageId{0}) : 1;
  return Bytes{checked_product(parameters, gradient_bytes(scenario.training).value, "the size of a gradient") / shares};
}

}  // namespace

TableExchange::TableExchange(const Plan& plan, const std::vector<VirtualStageId>& tied, const CostModel& cost)
    : group_(group_of(plan, tied, cost)), bytes_(bytes_of(plan, cost.scenario())) {}

}  // namespace pipewright::core
