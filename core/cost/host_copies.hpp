// Shards of weights and gradients that lie in the host's memory (training.offload_weights), and what brings them.
//                                                              [ZeROInfinity21] section 5.1, [FSDP23]
//
// Of a chunk with P parameters, divided among n devices, each device copies its own part through its own link:
//     weights, before each gather        w P / n / link
//     gradients, behind each reduction   g P / n / link
//     which the host adds to those of the step before it: that, and 3 g P / n / rate     two read, one written
// link: device.host_link, and no more than an even share of node.host_bandwidth; rate: device.host_update. PyTorch's FSDP2
// adds on the host, which waits for the copy, so that it issues nothing meanwhile: the next op of the device waits, too.
//                                                                                               [PyTorchFSDP26]
// 1e9 parameters on 8 devices, w = 2, g = 4, 50 and 10 GB/s: 5 ms, 10 ms, 10 + 150 ms     tests/planner/host_weights_test.cpp
#pragma once

#include "core/cluster/cluster.hpp"
#include "core/cost/step_costs.hpp"
#include "core/plan/plan.hpp"

namespace pipewright::core {

// Of copies between a device of that class and its host, while every device of a node copies. The device has a host_link.
// 8 devices of 50 GB/s on a host of 200 GB/s: 25 GB/s each.
Bandwidth to_host(const Cluster& cluster, const Device& device);

// Fills StepCosts::host_copies where the plan gathers weights from the host's memory.
void price_host_copies(StepCosts& costs, const Plan& plan, const CostModel& cost);

}  // namespace pipewright::core
