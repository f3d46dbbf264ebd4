#include "core/cost/tensor_flows.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/cost/collectives.hpp"
#include "core/cost/cost_model.hpp"
#include "core/plan/plan.hpp"

namespace pipewright::core {
namespace {

constexpr Bytes kLargeExchange{1 << 24};  // at whose rate a device's curve is near its best

std::vector<Time> taken_by_bytes(const std::vector<Time>& whole, const std::vector<Time>& without) {
  std::vector<Time> sent(whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i)
    sent[i] = std::max(Time{}, whole[i] - without[i]);
  return sent;
}

}  // namespace

std::optional<StepCosts::TensorFlows> tensor_flows(const Plan& plan, const CostModel& cost, const StepCosts& costs,
                                                   const DurationsOf& durations,
                                                   const std::function<DeviceId(WorkerId)>& lead) {
  const Scenario& scenario = cost.scenario();
  const int t = plan.tensor_parallel;
  if (scenario.plan.tensor_links.value != TensorLinks::Shared || t < 2) return {};
  const auto free = std::make_shared<Scenario>(scenario);
  free->plan.tensor_links.value = TensorLinks::Free;
  const CostModel without(free);
  StepCosts::TensorFlows flows{taken_by_bytes(costs.duration, durations(without, false)),
                               taken_by_bytes(costs.duration_last, durations(without, true)),
                               {}};
  const auto nothing = [](const std::vector<Time>& sent) {
    return std::all_of(sent.begin(), sent.end(), [](Time time) { return time == Time{}; });
  };
  if (nothing(flows.sent) && nothing(flows.sent_last)) return {};
  for (WorkerId worker = 0; worker < costs.shape.data_parallel * plan.positions(); ++worker) {
    std::vector<DeviceId> members;
    for (int member = 0; member < t; ++member)
      members.push_back(static_cast<DeviceId>(lead(worker) + member));
    const AllReduceGroup group(std::move(members), cost.topology(), scenario.cluster.devices_per_node,
                               &scenario.cluster);
    CollectivePhase ring = group.price(AllReduce::Ring, kLargeExchange).phases.front();
    flows.rings.push_back({ring.rate, std::move(ring.links)});
  }
  return flows;
}

}  // namespace pipewright::core
