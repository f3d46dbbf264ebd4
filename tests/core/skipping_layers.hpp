// Four layers of which one is used by two later ones, and a plan of a stage for each.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/question/scenario.hpp"
#include "tests/support/microseconds.hpp"

namespace pipewright::tests {

inline Layer timed_layer(const std::string& name, std::vector<LayerId> inputs, std::int64_t bytes,
                         std::int64_t forward_us, std::int64_t parameters = 0) {
  Layer result;
  result.name = name;
  result.inputs = std::move(inputs);
  result.activation = Bytes{bytes};
  result.forward = us(forward_us);
  result.backward = us(2 * forward_us);
  result.parameters = parameters;
  return result;
}

// Four layers a -> b -> c -> d with figures for four samples; a's output is used by c and d, too.
inline Scenario with_skips() {
  Scenario scenario;
  scenario.model.batch = 4;
  scenario.model.layers = {timed_layer("a", {}, 1'000, 10, 100), timed_layer("b", {0}, 20'000, 20, 200),
                           timed_layer("c", {0, 1}, 300'000, 30, 300), timed_layer("d", {0, 2}, 0, 40)};
  scenario.cluster.devices_per_node = 8;
  scenario.cluster.links.kind = LinkKind::Nvswitch;
  scenario.cluster.links.bandwidth = Bandwidth{1e9};
  scenario.cluster.links.latency = us(7);
  scenario.cluster.device.launch_overhead = us(1);
  return scenario;
}

// One layer per stage, one worker each.
inline Plan four_stages() {
  Plan plan;
  plan.schedule = "gpipe";
  plan.stages = 4;
  plan.replicas = {1, 1, 1, 1};
  plan.recompute.assign(4, Recompute::None);
  plan.layers = {{0, 1}, {1, 2}, {2, 3}, {3, 4}};
  plan.micro_batches = 8;
  plan.micro_batch_size = 4;
  plan.last_micro_batch_size = 4;
  plan.global_batch_size = 32;
  plan.device = {0, 1, 2, 3};
  return plan;
}

// All of these layers on one stage, in copies.
inline Plan one_stage(LayerRange layers, int copies) {
  Plan plan = four_stages();
  plan.stages = 1;
  plan.data_parallel = copies;
  plan.replicas = {1};
  plan.recompute.assign(1, Recompute::None);
  plan.layers = {layers};
  plan.global_batch_size = 32 * copies;
  return plan;
}

}  // namespace pipewright::tests
