// A GPU behind the seam of calibrate/device_loop.hpp: what the CUDA backend does for a step is what is timed, on
// streams of virtual devices.
//
// A reading: the streams are held by a gate until everything lies in them (launching does not show), the clock is
// probed, the L2 is flushed unless inputs are to be warm, and as many passes as take 100 us follow between two events;
// the other busy groups do the same for longer. What is beside the one that is timed, of a pair, begins before it and
// ends after it; where it did not, the reading is taken again with more passes of it. Where the host takes part (copies
// of pageable memory, launches one by one) no gate holds the stream: the device waits for the host between the same two
// events, as it does in a run. Cold passes go round blocks of more than twice the L2 in all. All
// values are random, between -1 and 1; nothing is ever 0.
//
// Nothing of it has run on a GPU yet (docs/how-it-works/gpu.md).
#pragma once

#include <memory>
#include <string>

#include "calibrate/device_loop.hpp"

namespace pipewright::calibrate {

// GPU number `device`; `date` and `revision` go into its facts. Throws GpuError that says what is missing.
std::unique_ptr<DeviceUnderTest> gpu_under_test(int device, const std::string& date, const std::string& revision);

}  // namespace pipewright::calibrate
