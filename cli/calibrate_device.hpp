// `calibrate` without a scenario: what the operations of a whole device cost, as a preset that prices any model.
#pragma once

#include "cli/commands.hpp"

namespace pipewright::cli {

// Throws InputError, GpuError where there is no GPU; then nothing is written.
int calibrate_device(const Arguments& arguments);

}  // namespace pipewright::cli
