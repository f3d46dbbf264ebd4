#include "sim/schedules/made_order.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/schedules/lists.hpp"

namespace pipewright::sim {
namespace {

bool is_of(const GivenSchedule& order, const ScheduleShape& shape) {
  return order.stages == shape.stages && order.virtual_stages == shape.virtual_stages &&
         order.micro_batches == shape.micro_batches && order.chunk_order == shape.chunk_order;
}

ZeroBubbleTimes equal_times(const ScheduleShape& shape) {
  const std::vector<std::int64_t> ones(at(shape.chunks()), 1);
  return {.forward = ones, .input = ones, .weights = ones, .held = {}, .kept_after_input = {}, .cap = {}, .hop = 0};
}

}  // namespace

std::shared_ptr<const GivenSchedule> made_order(const ScheduleRule& rule, OrderProblem problem, std::int64_t in_flight,
                                                double kept) {
  constexpr std::int64_t whole = 1'000'000;  // of a chunk
  problem.held.assign(at(problem.chunks()), whole);
  problem.kept_after_input.assign(at(problem.chunks()), std::llround(whole * kept));
  const std::int64_t most = std::min<std::int64_t>(in_flight, 1 << 30) * problem.virtual_stages;
  problem.cap.assign(at(problem.stages), most * whole);
  GivenSchedule order;
  order.stages = problem.stages, order.virtual_stages = problem.virtual_stages;
  order.micro_batches = problem.micro_batches, order.chunk_order = problem.chunk_order;
  order.compute = rule.made_for(problem);
  if (order.compute.empty()) return nullptr;
  return std::make_shared<const GivenSchedule>(std::move(order));
}

OrderProblem one_hop_problem(const ScheduleShape& shape, const ZeroBubbleTimes& times) {
  OrderProblem problem{.stages = shape.stages,
                       .virtual_stages = shape.virtual_stages,
                       .micro_batches = shape.micro_batches,
                       .chunk_order = shape.chunk_order,
                       .measure = OrderMeasure::Step,
                       .forward = times.forward,
                       .input = times.input,
                       .weights = times.weights,
                       .held = times.held,
                       .kept_after_input = times.kept_after_input,
                       .cap = times.cap};
  const Seating seating = problem.seating();
  for (VirtualStageId v = 0; v + 1 < problem.chunks(); ++v)
    problem.down.push_back(seating.stage_of(v) == seating.stage_of(v + 1) ? 0 : times.hop);
  problem.up = problem.down;
  return problem;
}

ZeroBubbleTimes zero_bubble_times(const OrderProblem& problem) {
  ZeroBubbleTimes times{.forward = problem.forward,
                        .input = problem.input,
                        .weights = problem.weights,
                        .held = problem.held,
                        .kept_after_input = problem.kept_after_input,
                        .cap = problem.cap};
  for (VirtualStageId v = 0; v < problem.chunks(); ++v)
    times.input[at(v)] += problem.again_of(v);
  for (std::size_t v = 0; v < times.held.size(); ++v)
    times.kept_after_input[v] = std::min(times.kept_after_input[v], times.held[v]);
  for (const auto* const hops : {&problem.down, &problem.up})
    for (const std::int64_t hop : *hops)
      times.hop = std::max(times.hop, hop);
  return times;
}

Schedule made_schedule(const ScheduleRule& rule, const ScheduleShape& shape) {
  if (shape.given && is_of(*shape.given, shape)) return schedule_of_lists(rule.name, shape, shape.given->compute);
  const auto order = made_order(rule, one_hop_problem(shape, equal_times(shape)), shape.stages);
  return schedule_of_lists(rule.name, shape, order->compute);
}

}  // namespace pipewright::sim
