// A preset (configs/devices/*.yaml) from what was measured of a GPU.
//
//     peak               of each precision, the fastest product that was measured on the whole GPU
//     memory_bandwidth   bytes that the largest copy by the SMs read and wrote, per second
//     launch_overhead    of an empty kernel: for operations that were not measured
//     efficiency         for those, too: of products, convolutions, attention and what moves values, the median share
//     of
//                        these peaks over the measured sizes, its band half of what lies between 5 and 95 % of them;
//                        kinds without a measurement are assumed as in all other presets
//
// Peaks that were measured are lower than those of a data sheet, and FLOP utilisation against them is higher; each
// figure says so in its source.                                       tests/calibrate/device_preset_test.cpp
#pragma once

#include <string>

#include "core/cluster/cluster.hpp"
#include "core/cluster/measured_device.hpp"

namespace pipewright::calibrate {

// Throws InputError when neither a product nor a copy was measured on a whole GPU (virtual_devices 1), for which a
// preset needs peaks.
Device preset_of(const MeasuredDevice& measured, const std::string& name, Bytes memory);

}  // namespace pipewright::calibrate
