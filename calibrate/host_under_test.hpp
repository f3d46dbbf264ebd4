// One core of this machine behind the seam of calibrate/device_loop.hpp: the calibration of a GPU goes through every
// step of it where there is none, and a core's times are real ones.
//
// A core has one virtual device, which is itself, computes in fp32, and copies by itself alone. Times are the thread's
// own. Cold passes go round blocks of 64 MiB in all.
//
// Tests: tests/calibrate/host_under_test_test.cpp
#pragma once

#include <memory>
#include <string>

#include "calibrate/device_loop.hpp"

namespace pipewright::calibrate {

std::unique_ptr<DeviceUnderTest> host_under_test(const std::string& date, const std::string& revision);

}  // namespace pipewright::calibrate
