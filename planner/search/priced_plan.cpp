#include "planner/search/priced_plan.hpp"

#include <algorithm>
#include <utility>

#include "core/plan/op_index.hpp"
#include "planner/find_plan.hpp"
#include "planner/price.hpp"
#include "planner/search/better.hpp"

namespace pipewright {
namespace {

std::vector<Bytes> walked_needs(const Answer& answer) {
  std::vector<Bytes> needs(static_cast<std::size_t>(answer.schedule.shape.stages));
  for (std::size_t p = 0; p < answer.schedule.positions.size(); ++p) {
    Bytes& most = needs[static_cast<std::size_t>(stage_at(answer.schedule.shape, static_cast<PositionId>(p)))];
    most = std::max(
        most, need(answer.memory, peak(answer.memory, answer.schedule, static_cast<PositionId>(p)).bytes, 0).to_fit);
  }
  return needs;
}

}  // namespace

PricedPlan priced_plan(const Scenario& scenario, const Candidate& candidate, Objective objective) {
  PricedPlan result;
  Found& found = result.found;
  found.layout = candidate.layout;
  auto own = std::make_shared<Scenario>(settled(scenario, candidate.layout, &candidate.plan));
  const CostModel cost(*own);
  found.plan = find_plan(*own, cost);
  PP_CHECK(found.plan.layers == candidate.plan.layers);
  Answer answer = price(found.plan, cost, Engine::Auto);
  found.report = std::move(answer.report);
  result.buffers.assign(found.report.stages.size(), Bytes{});
  const std::vector<Bytes> walked = walked_needs(answer);
  for (const WorkerReport& worker : found.report.workers) {
    found.peak = std::max(found.peak, worker.need.with_reserve);
    found.to_fit = std::max(found.to_fit, worker.need.to_fit);
    found.peak_high = std::max(found.peak_high, worker.need.high);
    Bytes& most = result.buffers[static_cast<std::size_t>(worker.stage)];
    most = std::max(most, worker.need.to_fit - walked[static_cast<std::size_t>(worker.stage)]);
  }
  found.value = objective_value(objective, found.layout, scenario, found.report.step_time, found.to_fit);
  found.scenario = std::move(own);
  return result;
}

}  // namespace pipewright
