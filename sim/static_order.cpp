#include "sim/static_order.hpp"

#include "sim/compiled_order.hpp"

namespace pipewright::sim {

Time static_order_makespan(const Schedule& schedule, const StepCosts& costs) {
  const CompiledOrder order = CompiledOrder::of(schedule, costs);
  return costs.settled.empty() ? order.makespan(costs) : order.timeline(schedule, costs).makespan;
}

Timeline static_order(const Schedule& schedule, const StepCosts& costs) {
  return CompiledOrder::of(schedule, costs).timeline(schedule, costs);
}

}  // namespace pipewright::sim
