// A GPU behind the seam of calibrate/device_loop.hpp: what the CUDA backend does for a step is what is timed, on
// streams of virtual devices.
//
// A reading: the streams are held by a gate until everything lies in them (launching does not show), the clock is
// probed, the L2 is flushed unless inputs are to be warm, and as many passes as take 100 us follow between two events;
// the other busy groups do the same for longer. Cold passes go round blocks of more than twice the L2 in all. All
// values are random, between -1 and 1; nothing is ever 0.
//
// Nothing of it has run on a GPU yet (docs/gpu.md).
#pragma once

#include <memory>
#include <string>

#include "calibrate/device_loop.hpp"

namespace pipewright {

// GPU number `device`; `date` and `revision` go into its facts. Throws GpuError that says what is missing.
std::unique_ptr<DeviceUnderTest> gpu_under_test(int device, const std::string& date, const std::string& revision);

}  // namespace pipewright
