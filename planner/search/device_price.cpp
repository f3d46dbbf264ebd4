#include "planner/search/device_price.hpp"

namespace pipewright {

double price_per_hour(const Plan& plan, const Cluster& cluster) {
  constexpr double kDeviceSeconds = 3600;
  if (cluster.classes() == 1) return plan.devices() * cluster.device.price_per_hour.value_or(kDeviceSeconds);
  double sum = 0;
  for (int c = 0; c < cluster.classes(); ++c)
    sum += workers_on_class(plan, cluster, c) * plan.tensor_parallel *
           cluster.device_of(c).price_per_hour.value_or(kDeviceSeconds);
  return sum;
}

void check_prices(const Cluster& cluster) {
  for (int c = 1; c < cluster.classes(); ++c) {
    const Device &first = cluster.device, &other = cluster.device_of(c);
    if (first.price_per_hour.has_value() == other.price_per_hour.has_value()) continue;
    const Device &priced = first.price_per_hour ? first : other, &bare = first.price_per_hour ? other : first;
    throw InputError(cluster.place, "cluster: " + priced.name + " has a price_per_hour and " + bare.name +
                                        " has none, so their costs cannot be compared; give both, or neither");
  }
}

}  // namespace pipewright
