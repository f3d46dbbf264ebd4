#include "core/cost/tensor_flows.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "core/cost/collectives.hpp"
#include "core/cost/cost_model.hpp"
#include "core/cost/tensor_exchange.hpp"
#include "core/plan/plan.hpp"

namespace pipewright::core {
namespace {

using Links = std::vector<std::pair<std::int32_t, double>>;

CostModel priced_as(const Scenario& scenario, TensorLinks links) {
  const auto other = std::make_shared<Scenario>(scenario);
  other->plan.tensor_links.value = links;
  return CostModel(other);
}

// The ring of a group, and the highest rate at which all its links carry it.
std::pair<Links, double> ring_of(DeviceId lead, int devices, const Topology& topology, const Cluster& cluster) {
  std::vector<DeviceId> members;
  for (int member = 0; member < devices; ++member)
    members.push_back(static_cast<DeviceId>(lead + member));
  const AllReduceGroup group(std::move(members), topology, cluster.devices_per_node);
  CollectivePhase ring = group.price(AllReduce::Ring, Bytes{1}).phases.front();
  double rate = HUGE_VAL;
  for (const auto& [link, weight] : ring.links)
    rate = std::min(rate, topology.link(link).bandwidth.value / weight);
  return {std::move(ring.links), rate};
}

}  // namespace

std::optional<StepCosts::TensorFlows> tensor_flows(const Plan& plan, const CostModel& cost, const StepCosts& costs,
                                                   const DurationsOf& durations,
                                                   const std::function<DeviceId(WorkerId)>& lead) {
  const Scenario& scenario = cost.scenario();
  if (scenario.plan.tensor_links.value != TensorLinks::Shared || plan.tensor_parallel < 2) return {};
  StepCosts::TensorFlows flows;
  double slowest = HUGE_VAL;  // bytes per second
  for (WorkerId worker = 0; worker < costs.shape.data_parallel * plan.positions(); ++worker) {
    auto [links, rate] = ring_of(lead(worker), plan.tensor_parallel, cost.topology(), scenario.cluster);
    if (links.empty()) return {};  // an ideal network
    slowest = std::min(slowest, rate);
    flows.links.push_back(std::move(links));
  }
  const CostModel free = priced_as(scenario, TensorLinks::Free), counted = priced_as(scenario, TensorLinks::Counted);
  bool any = false;
  for (const bool last : {false, true}) {
    const std::vector<Time>& whole = last ? costs.duration_last : costs.duration;
    const std::vector<Time> without = durations(free, last), with_bytes = durations(counted, last);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const Time time = std::max(Time{}, whole[i] - without[i]);
      // What runs beside products is sent in the time that is left of it at most.
      const double bytes = std::min(static_cast<double>((with_bytes[i] - without[i]).value) / kPerByte,
                                    slowest / 1e9 * static_cast<double>(time.value));
      const bool sends = time > Time{} && bytes > 0;
      (last ? flows.of_last : flows.of_full)
          .push_back(sends ? StepCosts::TensorFlows::Sent{time, bytes} : StepCosts::TensorFlows::Sent{});
      any |= sends;
    }
  }
  if (!any) return {};
  return flows;
}

}  // namespace pipewright::core
