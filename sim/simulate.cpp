#include "sim/simulate.hpp"

#include <fmt/format.h>

#include "sim/event_order.hpp"
#include "sim/static_order.hpp"

namespace pipewright::sim {
namespace {

// Of whose ops take longest for it.
std::string slowed_most(const Timeline& timeline, const Schedule& schedule, const StepCosts& costs) {
  Time most;
  WorkerId who;
  for (WorkerId w = 0; w < std::ssize(timeline.workers); ++w) {
    const auto& ops = schedule.lane_of(w).compute;
    Time longer;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Span span = timeline.workers[w].compute[i];
      longer += span.end - span.start - costs.time_of(ops[i]);
    }
    if (longer > most) most = longer, who = w;
  }
  return most > Time{} ? fmt::format("; the ops of worker {} take {:.4g} ms longer", who, 1e3 * seconds(most)) : "";
}

}  // namespace

Timeline simulate(const Schedule& schedule, const StepCosts& costs, Engine engine) {
  if (engine == Engine::EventQueue) {
    if (costs.together) static_order_makespan(schedule, costs);  // which refuses cells that wait for one another
    Timeline timeline = event_order(schedule, costs);
    timeline.engine_reason = "asked for";
    return timeline;
  }
  if (engine == Engine::Auto && costs.contention) {
    if (costs.together) static_order_makespan(schedule, costs);  // likewise
    return event_order(schedule, costs);
  }
  Timeline timeline = static_order(schedule, costs);
  if (costs.contention) {
    timeline.engine_reason = "asked for, although collectives contend with computing: that is ignored";
    return timeline;
  }
  const int shared = costs.links.empty() ? -1 : first_shared_link(timeline, schedule, costs);
  if (engine == Engine::StaticOrder) {
    timeline.engine_reason = shared < 0
                                 ? "asked for; no two transfers met on a link, so it is exact"
                                 : fmt::format("asked for, although transfers meet on {}: their sharing is ignored",
                                               costs.links[at(shared)].name);
    return timeline;
  }
  if (shared < 0) {
    timeline.engine_reason = costs.links.empty() ? "transfers share no links" : "no two transfers met on a link";
    return timeline;
  }
  timeline = event_order(schedule, costs);
  const std::string& link = costs.links[at(shared)].name;
  timeline.engine_reason = costs.tensor_flows
                               ? fmt::format("transfers and exchanges of tensor-parallel groups meet on {}{}", link,
                                             slowed_most(timeline, schedule, costs))
                               : fmt::format("transfers meet on {}", link);
  return timeline;
}

}  // namespace pipewright::sim
