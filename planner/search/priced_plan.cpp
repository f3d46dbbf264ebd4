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
    Bytes& most = result.buffers[static_cast<std::size_t>(worker.stage)];
    most = std::max(most, worker.need.to_fit - walked[static_cast<std::size_t>(worker.stage)]);
  }
  return result;
}

}  // namespace pipewright
