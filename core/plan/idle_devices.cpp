#include "core/plan/idle_devices.hpp"

namespace pipewright {

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

std::string idle_devices_in_words(const Plan& plan, const Cluster& cluster) {
  const IdleDevices idle = idle_devices(plan, cluster);
  if (idle.count <= 0) return "";
  std::string words = std::to_string(idle.count) + " of " + std::to_string(cluster.devices()) +
                      (idle.count == 1 ? " devices has" : " devices have") + " nothing to do";
  if (cluster.classes() == 1) return words;
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

}  // namespace pipewright
