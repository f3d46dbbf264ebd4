// Devices of the cluster that a plan leaves without work.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster/cluster.hpp"
#include "core/plan/plan.hpp"

namespace pipewright::core {

struct IdleDevices {
  struct OfClass {
    int device_class = 0, idle = 0, all = 0;
    bool unused() const { return idle == all; }
  };
  std::vector<OfClass> classes;  // those with idle devices, in the cluster's order
  int count = 0;                 // of all classes
};

// A worker takes `tensor_parallel` devices from its own on. Two workers of two devices on six: 2 are idle.
// tests/core/device_classes_test.cpp "devices without work"
IdleDevices idle_devices(const Plan& plan, const Cluster& cluster);

// With what the same pipeline, in more or fewer copies, would use all devices: another global batch on this cluster,
// and another number of nodes with this batch. The nearest of each; nothing where there is none, or none is needed.
//     A pipeline of 4 devices, micro-batches of 1: on 12 devices a batch of 8 goes to 2 copies and leaves 4 devices
//     idle; 3 copies take a batch of 9, and 2 nodes of 4 devices the batch of 8.
//                                                     tests/core/device_classes_test.cpp "what would use all devices"
struct FullUse {
  std::optional<std::int64_t> batch;
  std::optional<int> nodes;
};
FullUse nearest_full_use(const Plan& plan, const Cluster& cluster);

// "2 of 4 devices have nothing to do"; of several classes also which: "... to do: 2 of 8 a100, all 8 v100"; and what
// would use all of them: "...; the same pipeline uses all with a global batch of 9, or on 2 nodes". "": none is idle.
std::string idle_devices_in_words(const Plan& plan, const Cluster& cluster);

// Names of the devices of classes that the plan does not use at all; of one class always none.
std::vector<std::string> unused_classes(const Plan& plan, const Cluster& cluster);

}  // namespace pipewright::core
