// An optimizer whose states lie in the host's memory, in part, and which updates that part there.        [ZeROOffload21]
//
// Of the P parameters that a device updates, x P (training.offload_optimizer) wait for three things, one after the other:
//     their gradients go to the host:   x P g / link
//     it reads and writes them:         x P (g + 2 s + w) / rate      gradient, states there and back, new weight
//     the new weights come back:        x P w / link
// with g, w and s bytes of a gradient, a weight and a parameter's states; fp32 weights are among the states in every
// precision, as the host has no others. link: device.host_link, shared as core/cost/host_copies.hpp has it, rate:
// device.host_update. Then the device updates the others. With training.offload_weights gradients are there already, and
// weights stay until they are read: the second of the three is all.
//
// bf16 with fp32 gradients and Adam: g = 4, w = 2, s = 12. 1e9 parameters, x = 1/2, 50 and 10 GB/s:
//     40 ms + 1500 ms + 20 ms                                                  tests/planner/host_update_test.cpp
#pragma once

#include <cstdint>

#include "core/cluster/cluster.hpp"
#include "core/question/scenario.hpp"

namespace pipewright::core {

// Of `parameters`, those that the host updates.
std::int64_t updated_by_host(std::int64_t parameters, const Training& training);

// Of a parameter's states, in the host's memory.
Bytes host_state_bytes(const Training& training);

// What the host adds for so many parameters that it updates. The device, one of the cluster's, has host_link and
// host_update.
Time host_update(std::int64_t parameters, const Training& training, const Cluster& cluster, const Device& device);

// Of the optimizer's states of a device, those that stay on it.
Bytes states_on_device(Bytes states, const Training& training);

}  // namespace pipewright::core
