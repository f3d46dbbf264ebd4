#include "core/cluster/cluster.hpp"

#include <algorithm>
#include <cmath>

#include "core/folds.hpp"

namespace pipewright::core {
namespace {

double interpolated(const std::vector<std::pair<double, double>>& curve, double work) {
  const auto above = std::ranges::upper_bound(curve, work, {}, &std::pair<double, double>::first);
  if (above == curve.begin()) return curve.front().second;
  if (above == curve.end()) return curve.back().second;
  const auto& [low, low_share] = *(above - 1);
  const auto& [high, high_share] = *above;
  return low_share + (high_share - low_share) * std::log(work / low) / std::log(high / low);
}

}  // namespace

int Cluster::nodes_of(int device_class) const {
  if (device_class > 0) return others[at(device_class) - 1].nodes;
  int first = nodes;
  for (const DeviceClass& other : others)
    first -= other.nodes;
  return first;
}

int Cluster::first_node_of(int device_class) const {
  return sum_over<int>(counted_to(device_class), [&](int before) { return nodes_of(before); });
}

int Cluster::class_of(DeviceId id) const {
  int device_class = classes() - 1;
  while (device_class > 0 && id < first_node_of(device_class) * devices_per_node)
    --device_class;
  return device_class;
}

const Device& Cluster::device_of(int device_class) const {
  return device_class == 0 ? device : others[at(device_class) - 1].device;
}

std::string Cluster::devices_in_words() const {
  std::string text;
  for (int c = 0; c < classes(); ++c)
    text += (c > 0 ? " + " : "") + std::to_string(nodes_of(c) * devices_per_node) + " x " + device_of(c).name;
  return text;
}

double Efficiency::at(double work) const {
  PP_CHECK(!curve.empty());
  const double share = interpolated(curve, work);
  return half_work > 0 && work > 0 ? share * work / (work + half_work) : share;
}

}  // namespace pipewright::core
