#include "planner/search/better.hpp"

#include <algorithm>

#include "core/plan/campaign.hpp"

namespace pipewright {

double tie(const SearchOptions& options) {
  constexpr double kTie = 0.001;
  return options.objective == Objective::Memory ? 0 : std::min(kTie, options.gap);
}

bool is_better(const Found& a, const Found& b) {
  const auto per_sample = [](const Found& found) {
    return seconds(found.report.step_time) / static_cast<double>(found.layout.global_batch());
  };
  return a.value != b.value ? a.value < b.value : per_sample(a) < per_sample(b);
}

void prefer_fewer_devices(std::vector<Found>& plans, const SearchOptions& options) {
  if (plans.empty() || options.objective == Objective::Memory) return;
  const double most = plans.front().value * (1 + tie(options));
  const auto end = std::find_if(plans.begin(), plans.end(), [&](const Found& found) { return found.value > most; });
  const auto fewest = std::min_element(
      plans.begin(), end, [](const Found& a, const Found& b) { return a.plan.devices() < b.plan.devices(); });
  std::rotate(plans.begin(), fewest, fewest + 1);
}

double objective_value(Objective objective, const Layout& layout, const Scenario& scenario, Time step, Bytes need) {
  const double per_sample = seconds(step) / static_cast<double>(layout.global_batch());
  switch (objective) {
    case Objective::Throughput: return per_sample;
    case Objective::StepTime: return seconds(step);
    case Objective::Cost: return per_sample * layout.devices() * price_per_hour(scenario, 0).value_or(3600) / 3600;
    case Objective::Memory: return static_cast<double>(need.value);
  }
  return per_sample;
}

}  // namespace pipewright
