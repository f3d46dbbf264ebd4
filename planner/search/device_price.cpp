#include "planner/search/device_price.hpp"

#include "core/plan/campaign.hpp"

namespace pipewright {

double price_per_hour(const Plan& plan, const Scenario& scenario) {
  constexpr double kDeviceSeconds = 3600;
  const Cluster& cluster = scenario.cluster;
  if (cluster.classes() == 1) return plan.devices() * price_per_hour(scenario, 0).value_or(kDeviceSeconds);
  double sum = 0;
  for (int c = 0; c < cluster.classes(); ++c)
    sum += workers_on_class(plan, cluster, c) * plan.tensor_parallel *
           price_per_hour(scenario, c).value_or(kDeviceSeconds);
  return sum;
}

void check_prices(const Scenario& scenario) {
  const Cluster& cluster = scenario.cluster;
  for (int c = 1; c < cluster.classes(); ++c) {
    const Device &first = cluster.device, &other = cluster.device_of(c);
    const bool priced_first = price_per_hour(scenario, 0).has_value();
    if (priced_first == price_per_hour(scenario, c).has_value()) continue;
    const Device &priced = priced_first ? first : other, &bare = priced_first ? other : first;
    throw InputError(cluster.place, "cluster: " + priced.name + " has a price_per_hour and " + bare.name +
                                        " has none, so their costs cannot be compared; give both, or neither");
  }
}

}  // namespace pipewright
