#include "core/cost/moves.hpp"

#include "core/cost/cost_model.hpp"
#include "core/cost/host_copies.hpp"
#include "core/cost/memory_model.hpp"
#include "core/cost/messages.hpp"

namespace pipewright::core {
namespace {

Collective over(Bytes bytes, const Route& route, Time slower) {
  const Time transfer = route.bandwidth.value > 0 ? transfer_time(bytes, route.bandwidth) : Time{};
  const Time occupied = checked_sum(transfer, slower);
  CollectivePhase phase{.bytes = static_cast<double>(bytes.value), .latency = route.latency, .time = {}, .links = {}};
  if (occupied > transfer)
    phase.rate = {phase.bytes / static_cast<double>(occupied.value) * 1e9};
  else if (transfer > Time{})
    phase.rate = route.bandwidth;
  phase.time = checked_sum(occupied, route.latency);
  for (const int link : route.links)
    phase.links.emplace_back(link, 1.0);
  return {bytes, phase.time, {phase}};
}

}  // namespace

void price_moves(StepCosts& costs, const Plan& plan, const CostModel& cost,
                 const std::function<Route(WorkerId, WorkerId)>& route,
                 const std::function<DeviceId(WorkerId)>& device) {
  if (!plan.facts.uses_partner && plan.offloaded.empty()) return;
  const Cluster& cluster = cost.scenario().cluster;
  Plan alone = plan;
  alone.scatter_gather = false;  // each device sends what it holds
  Sending sending(alone, cluster, cost.topology());
  const MemoryModel memory = memory_model(plan, cost);
  const int positions = plan.positions();
  costs.moves.resize(at(costs.shape.data_parallel) * at(costs.shape.chunks()) * 4);
  const auto fill = [&](VirtualStageId v, CopyId copy, const auto& price) {
    for (const Kind kind : {Kind::Offload, Kind::Reload})
      for (const auto m : {std::int64_t{0}, plan.passes() - 1}) {
        const Op op{kind, static_cast<std::uint16_t>(v), static_cast<std::uint32_t>(m)};
        const Bytes bytes = moved_stash(memory.chunks[v], costs.shape, op).stash;
        if (bytes > Bytes{}) costs.moves[costs.move(op, copy)] = price(bytes, kind == Kind::Reload);
      }
  };
  for (CopyId copy = 0; copy < costs.shape.data_parallel; ++copy)
    for (VirtualStageId v = 0; v < costs.shape.chunks(); ++v) {
      const StageId k = plan.stage_of(v), partner = costs.shape.partner_of(k);
      const Device& host = cluster.device_of(class_of_stage(plan, cluster, k));
      if (!plan.offloaded.empty() && plan.offloaded[at(v)] && host.host_link)
        fill(v, copy, [&](Bytes bytes, bool) {
          Route way;
          way.bandwidth = to_host(cluster, host);
          return over(bytes, way, {});
        });
      if (plan.offloaded.empty() && partner != k)
        fill(v, copy, [&](Bytes bytes, bool back) {
          const WorkerId here = copy * positions + k, there = copy * positions + partner;
          const WorkerId from = back ? there : here, to = back ? here : there;
          return over(bytes, route(from, to), sending(bytes, device(from), device(to)).slower);
        });
    }
}

}  // namespace pipewright::core
