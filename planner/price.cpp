#include "planner/price.hpp"

#include "planner/find_plan.hpp"
#include "sim/at_load.hpp"
#include "sim/schedules/table.hpp"
#include "sim/static_order.hpp"
#include "sim/steady_state.hpp"
#include "sim/summarize.hpp"

namespace pipewright::planner {

Schedule make_schedule(const Plan& plan, ScheduleShape shape) {
  const ScheduleRule* rule = find_schedule(plan.schedule);
  PP_CHECK(rule != nullptr);
  Schedule schedule = rule->generate(shape);
  PP_CHECK(validate(schedule).empty());
  return schedule;
}

std::optional<SteadyState> steady_state_of(const Schedule& schedule, const StepCosts& costs, const Timeline& timeline,
                                           Engine engine) {
  if (schedule.flush) return std::nullopt;
  const int enough = micro_batches_for_steady_state(schedule.shape);
  const bool all_full = costs.duration == costs.duration_last;
  const bool too_many = enough > kMostOps / (3 * schedule.shape.chunks() * schedule.shape.data_parallel);
  if ((schedule.shape.micro_batches >= enough && all_full) || too_many) return steady_state(schedule, costs, timeline);
  StepCosts longer = costs;
  longer.shape.micro_batches = std::max(enough, schedule.shape.micro_batches);
  longer.duration_last = longer.duration;
  longer.settled.clear();  // fill and drain are short there
  longer.messages_last = longer.messages;
  if (longer.tensor_flows) longer.tensor_flows->of_last = longer.tensor_flows->of_full;
  longer.ready_before_end_last.clear();
  const Schedule repeated = find_schedule(schedule.name)->generate(longer.shape);
  PP_CHECK(validate(repeated).empty());
  return steady_state(repeated, longer, simulate(repeated, longer, engine));
}

Time static_step(const Plan& plan, const Schedule& schedule, const StepCosts& costs) {
  if (plan.barrier.value == Barrier::Flush) return static_order_makespan(schedule, costs);
  return step_span(plan, static_order(schedule, costs));
}

Engine engine_of(const Timeline& timeline) {
  return timeline.engine == EngineRan::EventQueue ? Engine::EventQueue : Engine::StaticOrder;
}

std::int64_t run_size(const Schedule& schedule, const StepCosts& costs) {
  std::int64_t ops = 0;
  for (const Lane& lane : schedule.positions)
    ops += static_cast<std::int64_t>(lane.ops());
  const auto messages = static_cast<std::int64_t>(costs.edges.size()) * 2 * schedule.shape.micro_batches;
  return (ops + messages) * schedule.shape.data_parallel;
}

StepCosts folded_costs(const Plan& plan, const CostModel& cost) {
  return step_costs(plan, cost, fold_copies(plan, cost, Alike::OnLinks));
}

Answer price(const Plan& plan, const CostModel& cost, Engine engine, Copies copies) {
  Answer answer;
  answer.scenario = cost.shared_scenario();
  answer.plan = plan;
  answer.costs = copies == Copies::Each ? step_costs(plan, cost) : folded_costs(plan, cost);
  PP_CHECK(validate(answer.costs).empty());
  answer.schedule = make_schedule(plan, answer.costs.shape);
  answer.timeline = simulate(answer.schedule, answer.costs, engine);
  answer.memory = memory_model(plan, cost);
  const auto steady = steady_state_of(answer.schedule, answer.costs, answer.timeline, engine);
  answer.report =
      summarize(answer.timeline, answer.schedule, plan, answer.costs, answer.memory, cost.scenario(), steady);
  return answer;
}

void settle(Answer& answer, Engine engine) {
  if (answer.costs.loads.empty()) return;
  answer.timeline = settle(answer.schedule, answer.costs, engine);
  const auto steady = steady_state_of(answer.schedule, answer.costs, answer.timeline, engine);
  answer.report =
      summarize(answer.timeline, answer.schedule, answer.plan, answer.costs, answer.memory, *answer.scenario, steady);
}

}  // namespace pipewright::planner
