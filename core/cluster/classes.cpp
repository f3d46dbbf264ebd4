#include "core/cluster/cluster.hpp"

namespace pipewright {

int Cluster::nodes_of(int device_class) const {
  if (device_class > 0) return others[static_cast<std::size_t>(device_class) - 1].nodes;
  int first = nodes;
  for (const DeviceClass& other : others)
    first -= other.nodes;
  return first;
}

int Cluster::first_node_of(int device_class) const {
  int node = 0;
  for (int before = 0; before < device_class; ++before)
    node += nodes_of(before);
  return node;
}

int Cluster::class_of(DeviceId id) const {
  int device_class = classes() - 1;
  while (device_class > 0 && id < first_node_of(device_class) * devices_per_node)
    --device_class;
  return device_class;
}

const Device& Cluster::device_of(int device_class) const {
  return device_class == 0 ? device : others[static_cast<std::size_t>(device_class) - 1].device;
}

std::string Cluster::devices_in_words() const {
  std::string text;
  for (int c = 0; c < classes(); ++c)
    text += (c > 0 ? " + " : "") + std::to_string(nodes_of(c) * devices_per_node) + " x " + device_of(c).name;
  return text;
}

}  // namespace pipewright
