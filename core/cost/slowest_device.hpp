// Devices of one kind differ (device.spread), and all wait for the slowest: of n devices whose speeds are normally
// distributed it takes 1 + spread * E times as long as the mean one, where E is the expected largest of n standard normal
// values,   E = integral of 1 - F(x)^n over x > 0, less that of F(x)^n over x < 0.                       [Sinha22]
// n = 2: 0.564; 8: 1.424; 1000: 3.241. With 1.5 %, 1024 devices: 1.0487.     tests/core/slowest_device_test.cpp
#pragma once

#include <cstdint>

namespace pipewright::core {

// n >= 1; 1 device: 1.
double slowest_of(std::int64_t devices, double spread);

}  // namespace pipewright::core
