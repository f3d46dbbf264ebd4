// The 90 % interval of a prediction in words, the same wherever it is printed.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/answers/report.hpp"
#include "core/cost/memory_model.hpp"

namespace pipewright::io {

std::string within_90(std::string_view low, std::string_view high);  // "90 % within 13.1 s to 16.2 s"

// "interval" and "to measure": what the interval of the step time is made of, and what would make it smaller. None
// without an interval.
//     interval    matrix products on a100 61.0 % of the variance (+-10 %, measured) · what the model leaves out ...
//     to measure  matrix products on a100 (calibrate --backend cuda on such a device): 90 % within 13.9 s to 15.1 s
std::vector<std::pair<std::string, std::string>> interval_lines(const Report& report);

// "90 % within 64.2 GiB to 75.7 GiB (activations 98.6 %, allocator 1.4 % of its width)", of a need with a range.
// A model that states what it keeps leaves the allocator's part open alone: "... (what the allocator adds)", or
// nothing where that is less than 2 %.
std::string memory_within_90(const MemoryNeed& need);

}  // namespace pipewright::io
