// Part 2, beside the profiles that price the runs: the operations of the device by size, fitted, with the errors of the
// formulas at sizes that they were not fitted on, by family.
#pragma once

#include <string>
#include <vector>

#include "calibrate/device_list.hpp"
#include "cli/accuracy/parts.hpp"

namespace pipewright {

// The models of parts 3 and 4, each with the sizes of its micro-batches. Of the items that are given.
std::vector<AskedModel> asked_models(const std::vector<StudyItem>& items);

inline const std::string kOperations = "operations";  // the record that all below was done

// Once per study; in a dry run one core of this machine takes the GPU's place. Writes part-2/device.yaml (a preset,
// where enough was measured for one), part-2/fit.svg, and a record per operation and number of SMs.
void calibrate_families(const PartTask& task, double seconds);

}  // namespace pipewright
