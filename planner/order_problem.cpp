#include "planner/order_problem.hpp"

#include "core/cost/cost_model.hpp"
#include "core/cost/memory_model.hpp"
#include "planner/price.hpp"

namespace pipewright {

namespace {

OrderProblem times_of_passes(const Plan& plan, const StepCosts& costs) {
  OrderProblem problem{.stages = plan.stages,
                       .virtual_stages = plan.virtual_stages,
                       .micro_batches = static_cast<int>(plan.micro_batches),
                       .chunk_order = costs.shape.chunk_order,
                       .measure = OrderMeasure::Step};
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    const auto time = [&](Kind kind) { return costs.duration[at(v) * kKinds + static_cast<std::size_t>(kind)].value; };
    const bool again = costs.shape.recomputes(plan.stage_of(v));
    problem.forward.push_back(time(Kind::F));
    problem.input.push_back(time(Kind::B) + (again ? time(Kind::R) : 0));
    problem.weights.push_back(time(Kind::W));
  }
  problem.down.assign(at(plan.chunks() - 1), 0), problem.up = problem.down;
  for (std::size_t edge = 0; edge < costs.edges.size(); ++edge) {
    const auto [from, to] = costs.edges[edge];
    if (to != from + 1) continue;
    const auto hop = [&](Direction direction) {
      const Message& message = costs.message(edge, direction, 0, 0);
      return message.channel < 0 ? 0 : (message.occupancy + message.latency).value;
    };
    problem.down[from] = hop(Direction::Forward), problem.up[from] = hop(Direction::Backward);
  }
  return problem;
}

}  // namespace

OrderProblem order_times(const Plan& plan, const CostModel& cost) {
  return times_of_passes(plan, folded_costs(plan, cost));
}

OrderProblem order_problem(const Plan& plan, const CostModel& cost) {
  const StepCosts costs = folded_costs(plan, cost);
  OrderProblem problem = times_of_passes(plan, costs);
  const MemoryModel memory = memory_model(plan, cost);
  for (VirtualStageId v = 0; v < plan.chunks(); ++v) {
    const ChunkMemory& chunk = memory.chunks[at(v)];
    const bool again = costs.shape.recomputes(plan.stage_of(v));
    problem.held.push_back((again ? chunk.boundary : chunk.stash)[0].value);
    problem.kept_after_input.push_back(problem.held.back() + (again ? chunk.working[0].value : 0));
  }
  problem.cap.assign(at(plan.stages), 0);
  return problem;
}

}  // namespace pipewright
