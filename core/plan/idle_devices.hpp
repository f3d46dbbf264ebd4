// Devices of the cluster that a plan leaves without work.
#pragma once

#include <string>
#include <vector>

#include "core/cluster/cluster.hpp"
#include "core/plan/plan.hpp"

namespace pipewright {

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

// "2 of 4 devices have nothing to do"; of several classes also which: "... to do: 2 of 8 a100, all 8 v100". "": none.
std::string idle_devices_in_words(const Plan& plan, const Cluster& cluster);

// Names of the devices of classes that the plan does not use at all; of one class always none.
std::vector<std::string> unused_classes(const Plan& plan, const Cluster& cluster);

}  // namespace pipewright
