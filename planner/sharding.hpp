// What training.zero makes of a plan: who divides states with whom, and when weights and gradients are exchanged.
#pragma once

#include "core/plan/plan.hpp"
#include "planner/plan_errors.hpp"

namespace pipewright::planner {

// Settles Plan::shard, resharding and reduce_each; of weights that are sharded nothing is gathered yet.
void settle_division(const Scenario& scenario, Plan& plan, PlanErrors& errors);
// Whether the optimizer can leave its states to the host (training.offload_optimizer).
void check_host_update(const Scenario& scenario, PlanErrors& errors);
// Whether weights and gradients can lie in the host's memory (training.offload_weights).
void check_host_weights(const Scenario& scenario, const Plan& plan, PlanErrors& errors);
// That plan.offload_layers can be done: a schedule whose passes can be cut into units, and devices that say how fast they
// reach their host.
void check_offloading(const Scenario& scenario, const Plan& plan, PlanErrors& errors);
// That each unit which is offloaded is one block.
void check_units(const Scenario& scenario, const Plan& plan);
// Whether activations wait in another memory: a host's, or that of another stage.
bool moves_activations(const Scenario& scenario);
// Where plan.offload_layers asks: units, and which of them wait in the host's memory. Where weights are sharded: units, that and when they are gathered, and the buckets. The plan's layers must be cut into
// its stages; each chunk is cut into units, its blocks, and what is before and behind them.
//     zero 2        weights are gathered once a step, before the first forward                   [ZeRO20] section 5
//     zero 3        unit by unit, one ahead; given away after each pass, with several stages after the step, as PyTorch's
//                   pipelines do                                                         [FSDP23] [torchtitan26]
// tests/planner/sharding_test.cpp
void settle_units(const Scenario& scenario, Plan& plan);

// Parts that are gathered by themselves: a Transformer's blocks, each, and the layers before, between and behind them; of a
// model without blocks each layer that has weights, with those behind it that have none.
//     embedding, 2 blocks, norm, head: {0} {1} {2} {3, 4}
std::vector<LayerRange> natural_units(const Model& model, LayerRange layers);

}  // namespace pipewright::planner
