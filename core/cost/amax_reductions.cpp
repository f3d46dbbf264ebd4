#include "core/cost/amax_reductions.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/cost/collectives.hpp"

namespace pipewright::core {
namespace {

constexpr Bytes kAmaxesOfLayer{48};  // four linear layers with three values

// From the first device of a period of the topology on, so that groups that lie alike are equal. Those that share a sequence
// are copies that follow one another.
std::vector<DeviceId> amax_group(const Plan& plan, StageId stage, AmaxReduction among, int period) {
  const std::vector<DeviceId> all = members(plan, plan.seating().chunk_of(stage, 0));
  std::vector<DeviceId> leaders = all;
  if (among == AmaxReduction::TensorParallel) {
    leaders.resize(at(plan.context_parallel));
    for (std::size_t i = 0; i < leaders.size(); ++i)
      leaders[i] = all[i * (all.size() / at(plan.copies()))];
  }
  const int before = *std::ranges::min_element(leaders) / period * period;
  std::vector<DeviceId> group;
  for (const DeviceId leader : leaders)
    for (int i = 0; i < plan.tensor_parallel; ++i)
      group.push_back(leader - before + i);
  return group;
}

}  // namespace

std::vector<Time> amax_reductions(const Plan& plan, const CostModel& cost) {
  const Scenario& scenario = cost.scenario();
  const AmaxReduction among = scenario.training.amax_reduction.value;
  if (scenario.training.low_precision.value != LowPrecision::Fp8Delayed || among == AmaxReduction::None) return {};
  std::vector<Time> times;
  std::map<std::vector<DeviceId>, Time> known;
  const Bytes bytes{kAmaxesOfLayer.value * static_cast<std::int64_t>(scenario.model.layers.size())};
  for (StageId k = 0; k < plan.stages; ++k) {
    std::vector<DeviceId> group = amax_group(plan, k, among, cost.topology().period());
    const auto [at, absent] = known.try_emplace(std::move(group));
    if (absent && at->first.size() > 1)
      at->second = AllReduceGroup(at->first, cost.topology(), scenario.cluster.devices_per_node, &scenario.cluster)
                       .best(bytes)
                       .time;
    times.push_back(at->second);
  }
  return times;
}

}  // namespace pipewright::core
