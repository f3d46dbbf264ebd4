#include "kernels/device_grid.cuh"
#include "kernels/gpu_kernels.hpp"
#include "kernels/optimizers.hpp"

namespace pipewright::gpu_kernels {

template <class T>
void update(const Queue& queue, const UpdateRule<float>& rule, const UpdatedTensor<float, T>* tensors, I count) {
  grid_kernels::update(grid_kernels::DeviceGrid{queue}, rule, tensors, count);
}

PIPEWRIGHT_STORED_AS_ANY(update);

}  // namespace pipewright::gpu_kernels
