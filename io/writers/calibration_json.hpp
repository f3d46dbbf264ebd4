// What `calibrate` has measured, as JSON: times in seconds where the YAML has them with units.
// docs/reference/command-line.md
#pragma once

#include <string>
#include <vector>

#include "core/cluster/measured_device.hpp"
#include "core/cost/profile.hpp"

namespace pipewright {

// `written`: the files that hold the same. Schema pipewright.calibration/1.
std::string calibration_json(const MachineProfile& profile, const std::vector<std::string>& written);

// Of a whole device: every series with its formula, how far that is off, and its sizes. `preset`: the name that the
// device has in its file. Schema pipewright.device-calibration/1.
std::string device_calibration_json(const MeasuredDevice& device, const Device& preset,
                                    const std::vector<std::string>& written);

}  // namespace pipewright
