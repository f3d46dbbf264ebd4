// Part 2, beside the profiles that price the runs: the operations of the device by size, fitted, with the errors of the
// formulas at sizes that they were not fitted on, by family.
#pragma once

#include "cli/accuracy/parts.hpp"

namespace pipewright {

// Once per study; in a dry run one core of this machine takes the GPU's place. Writes part-2/device.yaml (a preset,
// where enough was measured for one), part-2/fit.svg, and a record per operation and number of SMs.
void calibrate_families(const PartTask& task, double seconds);

}  // namespace pipewright
