#include "core/cost/host_copies.hpp"

#include <algorithm>

#include "core/cost/cost_model.hpp"
#include "core/cost/memory_model.hpp"

namespace pipewright::core {
namespace {

Collective copied(Bytes bytes, Bandwidth rate, Time behind) {
  const Time transfer = transfer_time(bytes, rate);
  CollectivePhase phase{.bytes = static_cast<double>(bytes.value), .latency = behind, .time = {}, .links = {}};
  if (transfer > Time{}) phase.rate = rate;
  phase.time = checked_sum(transfer, behind);
  return {bytes, phase.time, {phase}};
}

}  // namespace

Bandwidth to_host(const Cluster& cluster, const Device& device) {
  if (!cluster.host_bandwidth) return *device.host_link;
  return {std::min(device.host_link->value, cluster.host_bandwidth->value / cluster.devices_per_node)};
}

void price_host_copies(StepCosts& costs, const Plan& plan, const CostModel& cost) {
  if (!costs.shape.weights_on_host()) return;
  const Cluster& cluster = cost.scenario().cluster;
  const MemoryModel memory = memory_model(plan, cost);
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    PP_CHECK(costs.shape.buckets_of(v) == 1);
    const Device& device = cluster.device_of(class_of_stage(plan, cluster, plan.stage_of(v)));
    const Bandwidth rate = to_host(cluster, device);
    const ChunkMemory& chunk = memory.chunks[v];
    costs.host_copies.push_back(copied(chunk.fetched, rate, {}));
    costs.host_copies.push_back(copied(chunk.stored, rate, {}));
    costs.host_copies.push_back(copied(chunk.stored, rate, transfer_time(3 * chunk.stored, *device.host_update)));
  }
}

}  // namespace pipewright::core
