#include "core/cost/contention.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "core/cost/cost_model.hpp"

namespace pipewright::core {
namespace {

double multiprocessors_left(const Device& device) {
  if (device.multiprocessors == 0) return 1;
  return 1 - static_cast<double>(device.contention.multiprocessors) / device.multiprocessors;
}

// Layers that are built from operators are priced once more, on such devices. What has a stated or measured time is
// taken to need the multiprocessors.                                 tests/planner/contention_test.cpp "stated"
std::vector<Time> durations_beside(const CostModel& cost, int device_class, const OpDurations& durations) {
  const auto beside = std::make_shared<Scenario>(cost.scenario());
  const double left = multiprocessors_left(beside->cluster.device_of(device_class));
  for (Layer& layer : beside->model.layers)
    for (auto* const time : {&layer.forward, &layer.backward, &layer.backward_input, &layer.backward_weight})
      if (*time) *time = at_speed(**time, left);
  set_beside_collectives(beside->cluster.device);
  for (DeviceClass& other : beside->cluster.others)
    set_beside_collectives(other.device);
  return durations(CostModel(beside));
}

}  // namespace

void set_beside_collectives(Device& device) {
  const double left = multiprocessors_left(device);
  const KernelContention taken = std::exchange(device.contention, {});
  device.multiprocessors -= taken.multiprocessors;
  for (auto& [precision, peak] : device.peak)
    peak.value *= left;
  if (device.memory_bandwidth) device.memory_bandwidth->value /= taken.memory;
}

std::optional<StepCosts::Contention> contention_of(const Plan& plan, const CostModel& cost,
                                                   const std::vector<Time>& alone, const OpDurations& durations) {
  const Cluster& cluster = cost.scenario().cluster;
  StepCosts::Contention result{std::vector<double>(alone.size(), 1.0), {}};
  std::map<int, std::vector<Time>> slowed;  // by class
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    const int device_class = class_of_stage(plan, cluster, plan.stage_of(v));
    const Device& on = cluster.device_of(device_class);
    result.collectives.push_back(on.contention.collective);
    if (!on.contention.takes()) continue;
    const bool priced = cost.scenario().cost == CostSourceKind::Roofline && on.measured == nullptr;
    if (priced && !slowed.contains(device_class))
      slowed.emplace(device_class, durations_beside(cost, device_class, durations));
    for (std::size_t i = at(v) * kKinds; i < (at(v) + 1) * kKinds; ++i) {
      if (alone[i] == Time{}) continue;
      const double slower =
          priced ? static_cast<double>(slowed[device_class][i].value) / static_cast<double>(alone[i].value)
                 : 1 / multiprocessors_left(on);
      result.computing[i] = std::max(1.0, slower);
    }
  }
  const auto nothing = [](const std::vector<double>& slower) {
    return std::all_of(slower.begin(), slower.end(), [](double times) { return times == 1; });
  };
  if (nothing(result.computing) && nothing(result.collectives)) return {};
  return result;
}

}  // namespace pipewright::core
