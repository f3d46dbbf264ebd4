#include "planner/partitioners/least_step.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "planner/partitioners/exact.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"

namespace pipewright {
namespace {

constexpr std::int64_t kMostSimulations = 2000;
constexpr std::int64_t kMostPrefixes = std::int64_t{1} << 18;

// The least time that a message over each cut can take, between any two neighbouring workers of a copy.
std::vector<Time> fastest_hops(const Plan& plan, const CostModel& cost, const LayerCosts& layers) {
  const Model& model = cost.scenario().model;
  std::vector<Time> hops(model.layers.size());
  if (plan.skips == Skips::Direct || plan.stages < 2)
    return hops;  // what passes between neighbours depends on the cuts
  const std::vector<Bytes> over = bytes_over_cuts(model, layers.activation);
  const std::vector<Bytes> count = bytes_over_cuts(model, std::vector<Bytes>(model.layers.size(), Bytes{1}));
  std::vector<Route> routes;
  for (CopyId copy = 0; copy < plan.data_parallel; ++copy)
    for (int k = 0; k + 1 < plan.stages; ++k) {
      const auto worker = static_cast<std::size_t>(copy * plan.positions() + k);
      routes.push_back(cost.topology().route(plan.device[worker], plan.device[worker + 1]));
      routes.push_back(cost.topology().route(plan.device[worker + 1], plan.device[worker]));
    }
  for (std::size_t i = 0; i + 1 < hops.size(); ++i) {
    if (count[i + 1] == Bytes{}) continue;
    Time fastest = kNever;
    for (const Route& route : routes) {
      const Time transfer = route.bandwidth.value > 0 ? transfer_time(over[i + 1], route.bandwidth) : Time{};
      fastest = std::min(fastest, checked_sum(transfer, route.latency));
    }
    hops[i] = fastest;
  }
  return hops;
}

}  // namespace

std::string least_step_refusal(const Plan& plan) {
  const bool known = plan.schedule == "gpipe" || plan.schedule == "1f1b" || plan.schedule == "eager_1f1b";
  const bool replicated = std::any_of(plan.replicas.begin(), plan.replicas.end(), [](int r) { return r > 1; });
  if (!known)
    return "exact is for gpipe, 1f1b and eager_1f1b, not for " + plan.schedule + "; write balanced or fitting";
  if (plan.virtual_stages > 1 || replicated) return "exact is for one chunk per stage without replicas; write balanced";
  if (plan.last_micro_batch_size != plan.micro_batch_size)
    return "exact is for micro-batches of one size; write balanced, or a batch that divides";
  return "";
}

LeastStepPlan least_step(const Plan& plan, const CostModel& cost) {
  const LayerCosts layers = cost.layers(plan.micro_batch_size);
  const ScheduleRule* rule = find_schedule(plan.schedule);
  const Scenario& scenario = cost.scenario();
  const auto step = [&](const std::vector<LayerRange>& cut) {
    Plan whole = plan;
    whole.layers = cut;
    return static_order_makespan(rule->generate(schedule_shape(whole, scenario.model, scenario.training)),
                                 step_costs(whole, cost));
  };
  const ExactAnswer answer = exact({.schedule = plan.schedule,
                                    .stages = plan.stages,
                                    .micro_batches = static_cast<int>(plan.micro_batches),
                                    .forward = layers.forward,
                                    .backward = layers.backward,
                                    .hop = fastest_hops(plan, cost, layers),
                                    .step = step,
                                    .most_simulations = kMostSimulations,
                                    .most_prefixes = kMostPrefixes});
  const std::string tried = fmt::format("{} cut{} simulated", answer.simulations, answer.simulations == 1 ? "" : "s");
  return {answer.layers, answer.proven()
                             ? "partition: the least step of all cuts, proven; " + tried
                             : fmt::format("partition: at most {:.2f} % above the least step of all cuts; {}",
                                           100 * answer.gap(), tried)};
}

}  // namespace pipewright
