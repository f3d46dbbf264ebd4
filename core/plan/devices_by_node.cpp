#include "core/plan/devices_by_node.hpp"

#include <algorithm>

namespace pipewright {

std::map<int, int> devices_by_node(const Plan& plan, const Cluster& cluster) {
  std::map<int, int> taken;
  for (const DeviceId lead : plan.device)
    for (int member = 0; member < plan.tensor_parallel; ++member)
      ++taken[(lead + member) / std::max(1, cluster.devices_per_node)];
  return taken;
}

}  // namespace pipewright
