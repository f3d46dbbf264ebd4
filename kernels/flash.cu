#include "kernels/device_grid.cuh"
#include "kernels/flash.hpp"
#include "kernels/gpu_kernels.hpp"

namespace pipewright::gpu_kernels {

template <class T>
void flash_attention(const Queue& queue, const GpuAttentionShape& shape, I samples, const T* q, const T* k, const T* v,
                     T* y, float* log_sum) {
  grid_kernels::flash_attention(grid_kernels::DeviceGrid{queue}, shape, samples, q, k, v, y, log_sum);
}

template <class T>
void flash_attention_gradient(const Queue& queue, const GpuAttentionShape& shape, I samples, const T* q, const T* k,
                              const T* v, const T* y, const float* log_sum, const T* dy, T* dq, T* dk, T* dv,
                              float* workspace) {
  grid_kernels::flash_attention_gradient(grid_kernels::DeviceGrid{queue}, shape, samples, q, k, v, y, log_sum, dy, dq,
                                         dk, dv, workspace);
}

PIPEWRIGHT_STORED_AS_ANY(flash_attention);
PIPEWRIGHT_STORED_AS_ANY(flash_attention_gradient);

}  // namespace pipewright::gpu_kernels
