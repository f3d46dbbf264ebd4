// GPUs, behind plain C++: no CUDA type appears in this header.
#pragma once

#include <string>

namespace pipewright {

// GPUs that kernels can run on; 0 in a build without kernels.
int gpu_count();

// One line: what of a GPU this build can use, or what is missing. "no GPU kernels in this build (nvcc not found)"
std::string gpu_status();

}  // namespace pipewright
