#include "planner/search/found.hpp"

#include <algorithm>
#include <utility>

#include "core/answers/campaign.hpp"
#include "core/plan/op_index.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"

namespace pipewright::planner {
namespace {

std::vector<Bytes> walked_needs(const Answer& answer) {
  std::vector<Bytes> needs(at(answer.schedule.shape.stages));
  for (PositionId p = 0; p < std::ssize(answer.schedule.positions); ++p) {
    Bytes& most = needs[at(answer.schedule.seating().stage_at(p))];
    most = std::max(most, need(answer.memory, peak(answer.memory, answer.schedule, p).bytes, 0).to_fit);
  }
  return needs;
}

}  // namespace

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
  const auto end = std::ranges::find_if(plans, [&](const Found& found) { return found.value > most; });
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
    throw InputError(cluster.place, "cluster",
                     priced.name + " has a price_per_hour and " + bare.name +
                         " has none, so their costs cannot be compared; give both, or neither");
  }
}

Priced priced(std::shared_ptr<const Scenario> own, const Layout& layout, Objective objective) {
  Priced result;
  Found& found = result.found;
  found.layout = layout;
  const CostModel cost(own);
  found.plan = find_plan(*own, cost);
  result.answer = price(found.plan, cost, Engine::Auto);
  found.report = result.answer.report;
  for (const WorkerReport& worker : found.report.workers) {
    found.peak = std::max(found.peak, worker.need.with_reserve);
    found.to_fit = std::max(found.to_fit, worker.need.to_fit);
    found.peak_high = std::max(found.peak_high, worker.need.high);
  }
  found.value = objective_value(objective, found.layout, *own, found.report.step_time, found.to_fit);
  found.scenario = std::move(own);
  return result;
}

PricedPlan priced_plan(const Scenario& scenario, const Candidate& candidate, Objective objective) {
  Priced one = priced(std::make_shared<const Scenario>(settled(scenario, candidate.layout, &candidate.plan)),
                      candidate.layout, objective);
  PP_CHECK(one.found.plan.layers == candidate.plan.layers);
  PricedPlan result{std::move(one.found), std::vector<Bytes>(one.answer.report.stages.size())};
  const std::vector<Bytes> walked = walked_needs(one.answer);
  for (const WorkerReport& worker : result.found.report.workers) {
    Bytes& most = result.buffers[at(worker.stage)];
    most = std::max(most, worker.need.to_fit - walked[at(worker.stage)]);
  }
  return result;
}

}  // namespace pipewright::planner
