// `schedule`: the best order of passes for the plan of a scenario and a limit of memory (sim/finder).
#pragma once

#include <optional>
#include <vector>

#include "core/answers/found_order.hpp"
#include "core/question/scenario.hpp"
#include "sim/finder/find_order.hpp"

namespace pipewright::core {
class CostModel;
}

namespace pipewright::planner {

// Activations that may be held on every stage. Neither: what the devices' memory leaves for them.
struct OrderCap {
  std::optional<double> times_stages;  // this many times K micro-batches: 1, as 1F1B's first stage
  std::vector<Bytes> devices;          // memory of a device, for all it holds: one for all stages, or one each
};

struct ScheduleQuestion {
  std::optional<OrderMeasure> measure;  // none: as plan.barrier says
  OrderCap cap;
  std::optional<double>
      kept_for_weights;  // share of a micro-batch's activations that its W needs; none: as the plan says
  OrderBudget search;
  bool pareto = false;   // other caps, too
  double jitter = 0.05;  // how far the times of passes are off in `OrderRow::jittered`
};

// Throws InputError on a bad scenario, and where the finder does not
// know what the plan asks for: stages with replicas, chunks both ways, weights that are gathered, the plan left open.
ScheduleAnswer find_schedule_of(const Scenario& scenario, const ScheduleQuestion& question);

}  // namespace pipewright::planner
