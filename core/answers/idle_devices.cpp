#include "core/answers/idle_devices.hpp"

namespace pipewright::core {

IdleDevices idle_devices(const Plan& plan, const Cluster& cluster) {
  IdleDevices idle;
  for (int c = 0; c < cluster.classes(); ++c) {
    IdleDevices::OfClass of{.device_class = c, .all = cluster.nodes_of(c) * cluster.devices_per_node};
    of.idle = of.all - workers_on_class(plan, cluster, c) * plan.tensor_parallel;
    idle.count += of.idle;
    if (of.idle > 0) idle.classes.push_back(of);
  }
  return idle;
}

namespace {

// Samples that a copy takes at least, and in multiples.
std::int64_t share_of_copy(const Plan& plan) {
  return plan.micro_batch_size * (plan.facts.groups_of_stages ? plan.stages : 1);
}

std::int64_t nearest_multiple(std::int64_t number, std::int64_t unit) {
  const std::int64_t below = number / unit * unit;
  return below == 0 || number - below > below + unit - number ? below + unit : below;
}

// Whether so many nodes are all used by copies that share the batch evenly.
bool uses_all(const Plan& plan, const Cluster& cluster, std::int64_t nodes) {
  const std::int64_t pipeline = std::int64_t{plan.positions()} * plan.tensor_parallel * plan.context_parallel;
  const std::int64_t devices = nodes * cluster.devices_per_node;
  if (nodes < 1 || (nodes > 1 && !cluster.network) || devices % pipeline != 0) return false;
  return plan.global_batch_size % (devices / pipeline * share_of_copy(plan)) == 0;
}

std::string in_words(const FullUse& use) {
  if (!use.batch && !use.nodes) return "";
  std::string words = "; the same pipeline uses all ";
  if (use.batch) words += "with a global batch of " + std::to_string(*use.batch);
  if (use.nodes)
    words += std::string(use.batch ? ", or " : "") + "on " + std::to_string(*use.nodes) +
             (*use.nodes == 1 ? " node" : " nodes");
  return words;
}

}  // namespace

FullUse nearest_full_use(const Plan& plan, const Cluster& cluster) {
  constexpr int kMostTimes = 4;  // as many nodes
  FullUse use;
  if (cluster.classes() > 1 || plan.micro_batch_size < 1 || plan.positions() < 1) return use;
  const std::int64_t pipeline = std::int64_t{plan.positions()} * plan.tensor_parallel * plan.context_parallel;
  if (uses_all(plan, cluster, cluster.nodes)) return use;
  if (cluster.devices() % pipeline == 0)
    use.batch = nearest_multiple(plan.global_batch_size, cluster.devices() / pipeline * share_of_copy(plan));
  for (int apart = 1; apart <= kMostTimes * cluster.nodes && !use.nodes; ++apart)
    for (const int nodes : {cluster.nodes - apart, cluster.nodes + apart})
      if (!use.nodes && uses_all(plan, cluster, nodes)) use.nodes = nodes;
  return use;
}

std::string idle_devices_in_words(const Plan& plan, const Cluster& cluster) {
  const IdleDevices idle = idle_devices(plan, cluster);
  if (idle.count <= 0) return "";
  std::string words = std::to_string(idle.count) + " of " + std::to_string(cluster.devices()) +
                      (idle.count == 1 ? " devices has" : " devices have") + " nothing to do";
  if (cluster.classes() == 1) return words + in_words(nearest_full_use(plan, cluster));
  const char* before = ": ";
  for (const IdleDevices::OfClass& of : idle.classes) {
    words += before + (of.unused() ? "all " : std::to_string(of.idle) + " of ") + std::to_string(of.all) + " " +
             cluster.device_of(of.device_class).name;
    before = ", ";
  }
  return words;
}

std::vector<std::string> unused_classes(const Plan& plan, const Cluster& cluster) {
  std::vector<std::string> names;
  for (const IdleDevices::OfClass& of : idle_devices(plan, cluster).classes)
    if (of.unused() && cluster.classes() > 1) names.push_back(cluster.device_of(of.device_class).name);
  return names;
}

}  // namespace pipewright::core
