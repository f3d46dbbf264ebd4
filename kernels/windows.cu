#include "kernels/device_grid.cuh"
#include "kernels/gpu_kernels.hpp"
#include "kernels/windows.hpp"

namespace pipewright::gpu_kernels {

template <class T>
void max_pool(const Queue& queue, const GpuPoolShape& shape, I samples, const T* x, T* y, std::int32_t* position) {
  grid_kernels::max_pool(grid_kernels::DeviceGrid{queue}, shape, samples, x, y, position);
}

template <class T>
void max_pool_input_gradient(const Queue& queue, const GpuPoolShape& shape, I samples, const std::int32_t* position,
                             const T* dy, T* dx) {
  grid_kernels::max_pool_input_gradient(grid_kernels::DeviceGrid{queue}, shape, samples, position, dy, dx);
}

template <class T>
void average_pool(const Queue& queue, const GpuPoolShape& shape, I samples, const T* x, T* y) {
  grid_kernels::average_pool(grid_kernels::DeviceGrid{queue}, shape, samples, x, y);
}

template <class T>
void average_pool_input_gradient(const Queue& queue, const GpuPoolShape& shape, I samples, const T* dy, T* dx) {
  grid_kernels::average_pool_input_gradient(grid_kernels::DeviceGrid{queue}, shape, samples, dy, dx);
}

template <class T>
void global_average_pool_input_gradient(const Queue& queue, I planes, I plane, const T* dy, T* dx) {
  grid_kernels::global_average_pool_input_gradient(grid_kernels::DeviceGrid{queue}, planes, plane, dy, dx);
}

PIPEWRIGHT_STORED_AS_ANY(max_pool);
PIPEWRIGHT_STORED_AS_ANY(max_pool_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(average_pool);
PIPEWRIGHT_STORED_AS_ANY(average_pool_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(global_average_pool_input_gradient);

}  // namespace pipewright::gpu_kernels
