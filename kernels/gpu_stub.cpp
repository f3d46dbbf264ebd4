#include "kernels/gpu_api.hpp"

namespace pipewright {

int gpu_count() {
  return 0;
}

std::string gpu_status() {
  return PIPEWRIGHT_NVCC ? "no GPU kernels in this build (nvcc is there, calibration kernels are not written yet)"
                         : "no GPU kernels in this build (nvcc not found)";
}

}  // namespace pipewright
