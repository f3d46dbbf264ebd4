#include "kernels/device_grid.cuh"
#include "kernels/dropout.hpp"
#include "kernels/gpu_kernels.hpp"

namespace pipewright::gpu_kernels {

template <class T>
void dropout(const Queue& queue, const DropoutMask& mask, I n, const T* x, T* y) {
  grid_kernels::dropout(grid_kernels::DeviceGrid{queue}, mask, n, x, y);
}

PIPEWRIGHT_STORED_AS_ANY(dropout);

}  // namespace pipewright::gpu_kernels
