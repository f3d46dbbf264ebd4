// All that is run beside the passes. A generator (ScheduleRule::compute) lists F, B, W and BW alone; what the plan's other
// choices put between them is added here, in this order, each by a function of its own:
//
//   Offload, Reload       of stages that keep activations in their partner's memory                 ScheduleFacts::uses_partner
//   units                 each chunk is cut once more                                                  ScheduleShape::units
//   R                     directly before the backward that needs it                                               recompute
//   AllReduce, Update     behind the last backwards, or without a flush behind each round of them         data_parallel, buckets
//   TableReduce           of tables that several stages hold                                                           tied
//   NormReduce            of the norm of all gradients                                                                 norm
//   AllGather             of weights that are sharded; that are updated in parts                             resharding, updated
//   Offload, Reload       of activations that wait in the host's memory                                              offloaded
//   Fetch, Store          of shards that lie there                                                        weights_on_host()
//
// Messages between stages stand in no list: the passes imply them (sim/dependencies). A new kind of communication is a row of
// kStreams, a function here, and its price.
#pragma once

#include "core/plan/schedule.hpp"
#include "sim/schedules/table.hpp"

namespace pipewright::sim {

// To passes of `shape` in whole chunks.
void expand(const ScheduleRule& rule, const ScheduleShape& shape, Schedule& passes);

// "" or why the weights of that schedule are not gathered.
std::string gathering_refusal(const Schedule& schedule);

// Four chunks on one worker, gathers of 2 ms, forwards of 3: 2 + 4 * 3 = 14 ms; gathers of 4: 4 * 4 + 3 = 19 ms.
//                                                                                     tests/sim/gather_weights_test.cpp
void gather_weights(Schedule& schedule, const Resharding& when);

}  // namespace pipewright::sim
