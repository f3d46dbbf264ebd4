#pragma once

#include <cstdint>

#include "tests/support/uniform_scenario.hpp"

namespace pipewright::tests {

// Blocks of 100 million fp32 parameters, forwards of 3 ms and backwards of 6; ports of 100 GB/s. A block's weights, of
// 400 MB, are gathered by two copies in 2 ms, and so are its gradients scattered.
inline Scenario sharded(int blocks, std::int64_t copies, std::int64_t micro_batches, std::int64_t zero = 3) {
  Scenario scenario = uniform_scenario({.layers = blocks,
                                        .devices = static_cast<int>(copies),
                                        .stages = 1,
                                        .micro_batches = micro_batches,
                                        .forward = Time{3'000'000},
                                        .backward = Time{6'000'000}});
  for (Layer& layer : scenario.model.layers)
    layer.block = true, layer.parameters = 100'000'000;
  scenario.cluster.links.kind = LinkKind::Nvswitch;
  scenario.cluster.links.bandwidth = Bandwidth{100e9};
  scenario.plan.data_parallel.value = copies;
  scenario.training.zero = zero;
  scenario.training.zero_place = Place{"s.yaml", 9, 3};
  return scenario;
}

}  // namespace pipewright::tests
