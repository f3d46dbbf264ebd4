// PipeDream: asynchronous 1F1B with weight stashing. No flush: every micro-batch (the paper's mini-batch of one GPU) is
// an update, its backward uses the weight version that its forward used, and the pipeline never drains in between.
//
// NOAM micro-batches enter at stage 0, ceil(workers / input replicas); from then on every worker alternates. A
// replicated stage deals its micro-batches out in turn (1F1B-RR) and all-reduces once per round, one micro-batch of
// every replica. Overlapped, an update is placed one backward later than its round, so that forwards run while the
// gradients travel; at once and blocking, directly after the backward, where the worker waits for the round. When in
// the backward the gradients set out is a matter of prices. Vertical sync changes versions, not the order.
#include "sim/schedules/lists.hpp"
#include "sim/schedules/rules.hpp"

namespace pipewright::sim {
namespace {

Schedule pipedream_schedule(const ScheduleShape& shape) {
  return in_turns("pipedream", shape, false);
}

// No flush, so no worker of equal stages idles once the pipeline is full:
//     bubble = 0 in the steady state                                                [PipeDream19] section 3.2
//                                          tests/papers/identities_test.cpp "PipeDream's steady state has no bubble"
// Unequal numbers of replicas give equal stages unequal load: no formula here.
std::optional<Formula> pipedream_bubble(const ScheduleShape& shape) {
  for (StageId k = 1; k < shape.stages; ++k)
    if (shape.replicas_of(k) != shape.replicas_of(0)) return std::nullopt;
  return Formula{"0 in the steady state: no flush", 0, 1};
}

// Activations and weight versions alike:
//     peak = min(ceil(M / r), n_k), n_k = ceil(sum_{j >= k} r_j / r_k)              [PipeDream19] sections 3.2, 3.3
// straight K = 4: 4, 3, 2, 1; 15-1: 2, 1.  tests/sim/schedule_orders_test.cpp "15-1"
std::optional<std::int64_t> pipedream_peak(const ScheduleShape& shape, StageId stage) {
  return std::min<std::int64_t>(shape.seating().most_turns(shape.seating().chunk_of(stage, 0)),
                                in_flight(shape, stage));
}

}  // namespace

ScheduleRule pipedream() {
  return {.name = "pipedream",
          .title = "PipeDream: asynchronous 1F1B with weight stashing",
          .source = "PipeDream19",
          .memory = "K-k micro-batches on stage k; replicated: ceil(sum of r_j from k on / r_k)",
          .flush = false,
          .compute = pipedream_schedule,
          .bubble = pipedream_bubble,
          .peak_in_flight = pipedream_peak,
          .facts = {.takes_replicas = true},
          .searched_with_replicas = 1};
}

}  // namespace pipewright::sim
