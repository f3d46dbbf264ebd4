#include "planner/stated_plan.hpp"

#include <string>

#include <fmt/format.h>

#include "core/plan/mesh.hpp"
#include "planner/plan_errors.hpp"

namespace pipewright::planner {
namespace {

// "stages" or, where a stage holds several, "chunks": what the layers are divided into.
std::string parts_in_words(const Scenario& scenario) {
  const auto stages = scenario.plan.stages.value, per_stage = scenario.plan.virtual_stages.value;
  if (per_stage == 1) return counted(stages, "stage");
  return fmt::format("{} stages x {} virtual stages = {} chunks", stages, per_stage, stages * per_stage);
}

// Layers per chunk -> ranges.
std::vector<LayerRange> ranges_of(const std::vector<std::int64_t>& counts) {
  std::vector<LayerRange> ranges;
  LayerId begin = 0;
  for (const auto count : counts) {
    ranges.push_back({begin, begin + static_cast<LayerId>(count)});
    begin = ranges.back().end;
  }
  return ranges;
}

std::vector<DeviceId> listed_placement(const Scenario& scenario, const std::vector<std::int64_t>& list, int workers) {
  const std::int64_t group = scenario.plan.tensor_parallel.value;
  const Place& place = or_else(scenario.plan.placement_place, scenario.plan.place);
  const std::int64_t devices = scenario.cluster.devices();
  if (list.size() != at(workers))
    throw InputError(
        place, "plan.placement",
        fmt::format("{} devices for {}; give one per worker, copy by copy", list.size(), counted(workers, "worker")));
  std::vector<DeviceId> placement;
  std::vector<bool> taken(at(devices));
  for (const auto device : list) {
    if (device < 0 || device >= devices)
      throw InputError(place, "plan.placement",
                       fmt::format("no device {}; the cluster has 0..{}", device, devices - 1));
    if (group > 1 && device > devices - group)
      throw InputError(place, "plan.placement",
                       fmt::format("a worker of {} devices cannot begin at device {}; the "
                                   "last one of the cluster is {}",
                                   group, device, devices - 1));
    for (std::int64_t member = device; member < device + group; ++member) {
      if (taken[at(member)])
        throw InputError(
            place, group == 1
                       ? fmt::format("plan.placement: device {} is given twice; one worker per device", device)
                       : fmt::format("plan.placement: device {} belongs to two workers; a worker takes {} consecutive "
                                     "devices (plan.tensor_parallel) from the one given for it",
                                     member, group));
      taken[at(member)] = true;
    }
    placement.push_back(static_cast<DeviceId>(device));
  }
  return placement;
}

// "0 (h100) and 4 (a100)"
std::string class_beginnings(const Cluster& cluster) {
  std::string words;
  for (int c = 0; c < cluster.classes(); ++c)
    words += fmt::format("{}{} ({})",
                         c == 0                       ? ""
                         : c + 1 == cluster.classes() ? " and "
                                                      : ", ",
                         cluster.first_node_of(c) * cluster.devices_per_node, cluster.device_of(c).name);
  return words;
}

}  // namespace

std::vector<LayerRange> by_counts(const Scenario& scenario, const std::vector<std::int64_t>& counts) {
  const auto layers = static_cast<std::int64_t>(scenario.model.layers.size());
  const auto parts = at(scenario.plan.stages.value * scenario.plan.virtual_stages.value);
  const Place& place = or_else(scenario.plan.partition.place, scenario.plan.place);
  if (counts.size() != parts)
    throw InputError(place, "plan.partition",
                     fmt::format("{} layer counts for {}; give {}", counts.size(), parts_in_words(scenario), parts));
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 1)
      throw InputError(place, "plan.partition",
                       fmt::format("{} layers for stage {}; every one holds at least one", counts[i], i));
    sum = checked_sum(sum, counts[i], "plan.partition: the sum of the layer counts");
  }
  if (sum != layers)
    throw InputError(place, "plan.partition",
                     fmt::format("the counts sum to {}, the model has {}; cover every layer once, or write balanced",
                                 counted(sum, "layer"), layers));
  return ranges_of(counts);
}

std::vector<LayerRange> by_cuts(const Scenario& scenario, const std::vector<std::int64_t>& first) {
  const auto layers = static_cast<std::int64_t>(scenario.model.layers.size());
  const auto parts = at(scenario.plan.stages.value * scenario.plan.virtual_stages.value);
  const Place& place = or_else(scenario.plan.partition.place, scenario.plan.place);
  if (first.size() + 1 != parts)
    throw InputError(
        place, "plan.partition",
        fmt::format("{} for {}; give {}, the first layer of every stage but the first",
                    counted(static_cast<std::int64_t>(first.size()), "cut"), parts_in_words(scenario), parts - 1));
  std::int64_t before = 0;
  std::vector<std::int64_t> counts;
  for (const auto cut : first) {
    if (cut < 1 || cut >= layers)
      throw InputError(place, "plan.partition",
                       fmt::format("cut at layer {}, but a cut lies inside the model: use 1..{}", cut, layers - 1));
    if (cut <= before)
      throw InputError(place, "plan.partition",
                       fmt::format("cut at layer {} after a cut at layer {}; cuts must grow", cut, before));
    counts.push_back(cut - before);
    before = cut;
  }
  counts.push_back(layers - before);
  return ranges_of(counts);
}

std::vector<DeviceId> placement(const Scenario& scenario, const Plan& plan) {
  const int positions = plan.positions(), copies = plan.copies(), context = plan.context_parallel;
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&scenario.plan.placement))
    return listed_placement(scenario, *list, plan.workers());
  const PlacementOrder order = std::get<PlacementOrder>(scenario.plan.placement);
  std::vector<DeviceId> devices;
  for (CopyId copy = 0; copy < copies; ++copy)
    for (PositionId position = 0; position < positions; ++position)
      devices.push_back(static_cast<DeviceId>(seat_of(order, copy, position, copies, positions, context)) *
                        plan.tensor_parallel);
  return devices;
}

void refuse_mixed(const Scenario& scenario, const Plan& plan) {
  const std::string mixed = mixed_classes(plan, scenario.cluster);
  if (!mixed.empty())
    throw InputError(or_else(scenario.plan.placement_place, scenario.plan.place), "plan.placement",
                     fmt::format("{}; the classes of this cluster begin at devices {}: give every stage "
                                 "devices of one, or write partition: suffix_dp",
                                 mixed, class_beginnings(scenario.cluster)));
}

}  // namespace pipewright::planner
