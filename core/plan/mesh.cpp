#include "core/plan/mesh.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "core/check.hpp"

namespace pipewright::core {

Mesh::Mesh(std::vector<DeviceId> devices, std::vector<Length> lengths)
    : devices_(std::move(devices)), lengths_(std::move(lengths)) {
  std::int64_t all = 1;
  for (const Length& length : lengths_)
    all *= length.size;
  PP_CHECK(all == static_cast<std::int64_t>(devices_.size()));
}

DeviceGroups Mesh::along(std::initializer_list<Axis> axes) const {
  DeviceGroups groups;
  std::map<std::int64_t, std::size_t> numbers;  // by the place along the other axes
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    std::int64_t elsewhere = 0, stride = 1, left = static_cast<std::int64_t>(i);
    for (const Length& length : lengths_) {
      const std::int64_t coordinate = std::exchange(left, left / length.size) % length.size;
      if (std::ranges::find(axes, length.axis) != axes.end()) continue;
      elsewhere += coordinate * stride, stride *= length.size;
    }
    const auto [number, first] = numbers.try_emplace(elsewhere, groups.size());
    if (first) groups.emplace_back();
    groups[number->second].push_back(devices_[i]);
  }
  return groups;
}

std::vector<DeviceId> with_members(const std::vector<DeviceId>& leads, int t) {
  std::vector<DeviceId> all;
  all.reserve(leads.size() * at(t));
  for (const DeviceId lead : leads)
    for (int member = 0; member < t; ++member)
      all.push_back(lead + member);
  return all;
}

std::int64_t seat_of(PlacementOrder order, std::int64_t copy, std::int64_t position, std::int64_t copies,
                     std::int64_t positions, std::int64_t context) {
  if (order == PlacementOrder::Data) return position * copies + copy;
  return (copy / context * positions + position) * context + copy % context;
}

std::vector<DeviceId> leads_of_first_stage(const PlanRequest& plan, const Cluster& cluster) {
  const std::int64_t t = plan.tensor_parallel.value, c = plan.context_parallel.value, stages = plan.stages.value,
                     copies = plan.data_parallel.value * c;
  if (copies < 1 || t < 1 || copies > cluster.devices() / t) return {};
  const auto* list = std::get_if<std::vector<std::int64_t>>(&plan.placement);
  if (list != nullptr && static_cast<std::int64_t>(list->size()) != copies * stages) return {};
  std::vector<DeviceId> leads;
  std::set<std::int64_t> taken;
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    const std::int64_t lead = list != nullptr
                                  ? (*list)[at(copy * stages)]
                                  : seat_of(std::get<PlacementOrder>(plan.placement), copy, 0, copies, stages, c) * t;
    if (lead < 0 || lead + t > cluster.devices()) return {};
    const auto behind = taken.lower_bound(lead);
    if ((behind != taken.end() && *behind < lead + t) || (behind != taken.begin() && *std::prev(behind) + t > lead))
      return {};
    taken.insert(lead);
    leads.push_back(static_cast<DeviceId>(lead));
  }
  return leads;
}

}  // namespace pipewright::core
