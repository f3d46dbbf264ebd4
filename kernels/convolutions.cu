#include "kernels/device_grid.cuh"
#include "kernels/gpu_kernels.hpp"
#include "kernels/tiles.hpp"

namespace pipewright::gpu_kernels {

template <class T>
void conv2d(const Queue& queue, const GpuConvShape& shape, I samples, const T* x, const T* w, const T* bias, T* y) {
  grid_kernels::conv2d(grid_kernels::DeviceGrid{queue}, shape, samples, x, w, bias, y);
}

template <class T>
void conv2d_input_gradient(const Queue& queue, const GpuConvShape& shape, I samples, const T* dy, const T* w, T* dx) {
  grid_kernels::conv2d_input_gradient(grid_kernels::DeviceGrid{queue}, shape, samples, dy, w, dx);
}

template <class T>
void conv2d_weight_gradient(const Queue& queue, const GpuConvShape& shape, I samples, const T* x, const T* dy,
                            float* dw, float* db) {
  grid_kernels::conv2d_weight_gradient(grid_kernels::DeviceGrid{queue}, shape, samples, x, dy, dw, db);
}

PIPEWRIGHT_STORED_AS_ANY(conv2d);
PIPEWRIGHT_STORED_AS_ANY(conv2d_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(conv2d_weight_gradient);

}  // namespace pipewright::gpu_kernels
