#include "kernels/device_grid.cuh"
#include "kernels/gpu_kernels.hpp"
#include "kernels/rows.hpp"

namespace pipewright::gpu_kernels {

template <class T>
void layer_norm(const Queue& queue, I rows, I features, const T* x, const T* weight, const T* bias, T* y,
                float* statistics) {
  grid_kernels::layer_norm(grid_kernels::DeviceGrid{queue}, rows, features, x, weight, bias, y, statistics);
}

template <class T>
void layer_norm_input_gradient(const Queue& queue, I rows, I features, const T* x, const float* statistics,
                               const T* weight, const T* dy, T* dx) {
  grid_kernels::layer_norm_input_gradient(grid_kernels::DeviceGrid{queue}, rows, features, x, statistics, weight, dy,
                                          dx);
}

template <class T>
void layer_norm_weight_gradient(const Queue& queue, I rows, I features, const T* x, const float* statistics,
                                const T* dy, float* d_weight, float* d_bias, float* workspace) {
  grid_kernels::layer_norm_weight_gradient(grid_kernels::DeviceGrid{queue}, rows, features, x, statistics, dy, d_weight,
                                           d_bias, workspace);
}

template <class T>
void rms_norm(const Queue& queue, I rows, I features, const T* x, const T* weight, T* y, float* statistics) {
  grid_kernels::rms_norm(grid_kernels::DeviceGrid{queue}, rows, features, x, weight, y, statistics);
}

template <class T>
void rms_norm_input_gradient(const Queue& queue, I rows, I features, const T* x, const float* statistics,
                             const T* weight, const T* dy, T* dx) {
  grid_kernels::rms_norm_input_gradient(grid_kernels::DeviceGrid{queue}, rows, features, x, statistics, weight, dy, dx);
}

template <class T>
void rms_norm_weight_gradient(const Queue& queue, I rows, I features, const T* x, const float* statistics, const T* dy,
                              float* d_weight, float* workspace) {
  grid_kernels::rms_norm_weight_gradient(grid_kernels::DeviceGrid{queue}, rows, features, x, statistics, dy, d_weight,
                                         workspace);
}

template <class T>
void softmax(const Queue& queue, I rows, I features, const T* x, T* y) {
  grid_kernels::softmax(grid_kernels::DeviceGrid{queue}, rows, features, x, y);
}

template <class T>
void softmax_input_gradient(const Queue& queue, I rows, I features, const T* y, const T* dy, T* dx) {
  grid_kernels::softmax_input_gradient(grid_kernels::DeviceGrid{queue}, rows, features, y, dy, dx);
}

template <class T>
void cross_entropy(const Queue& queue, I samples, I rows, I classes, const T* x, const I* labels, float scale,
                   float* losses, T* gradient, float* row_losses) {
  grid_kernels::cross_entropy(grid_kernels::DeviceGrid{queue}, samples, rows, classes, x, labels, scale, losses,
                              gradient, row_losses);
}

template <class T>
void global_average_pool(const Queue& queue, I planes, I plane, const T* x, T* y) {
  grid_kernels::global_average_pool(grid_kernels::DeviceGrid{queue}, planes, plane, x, y);
}

template <class T>
void bias_gradient(const Queue& queue, I rows, I features, const T* dy, float* db, float* workspace) {
  grid_kernels::bias_gradient(grid_kernels::DeviceGrid{queue}, rows, features, dy, db, workspace);
}

template <class T>
void sum(const Queue& queue, I n, const T* x, float* total, float* workspace) {
  grid_kernels::sum(grid_kernels::DeviceGrid{queue}, n, x, total, workspace);
}

PIPEWRIGHT_STORED_AS_ANY(layer_norm);
PIPEWRIGHT_STORED_AS_ANY(layer_norm_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(layer_norm_weight_gradient);
PIPEWRIGHT_STORED_AS_ANY(rms_norm);
PIPEWRIGHT_STORED_AS_ANY(rms_norm_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(rms_norm_weight_gradient);
PIPEWRIGHT_STORED_AS_ANY(softmax);
PIPEWRIGHT_STORED_AS_ANY(softmax_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(cross_entropy);
PIPEWRIGHT_STORED_AS_ANY(global_average_pool);
PIPEWRIGHT_STORED_AS_ANY(bias_gradient);
PIPEWRIGHT_STORED_AS_ANY(sum);

}  // namespace pipewright::gpu_kernels
