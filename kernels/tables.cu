#include "kernels/device_grid.cuh"
#include "kernels/gpu_kernels.hpp"
#include "kernels/tables.hpp"

namespace pipewright::gpu_kernels {

template <class T>
void embedding(const Queue& queue, I rows, I features, const I* index, const T* table, T* y) {
  grid_kernels::embedding(grid_kernels::DeviceGrid{queue}, rows, features, index, table, y);
}

template <class T>
void embedding_weight_gradient(const Queue& queue, I rows, I features, const I* index, const T* dy, float* d_table,
                               I* order) {
  grid_kernels::embedding_weight_gradient(grid_kernels::DeviceGrid{queue}, rows, features, index, dy, d_table, order);
}

template <class T>
void learned_table(const Queue& queue, I samples, I values, const T* x, const T* table, T* y) {
  grid_kernels::learned_table(grid_kernels::DeviceGrid{queue}, samples, values, x, table, y);
}

template <class T>
void learned_table_weight_gradient(const Queue& queue, I samples, I values, const T* dy, float* d_table,
                                   float* workspace) {
  grid_kernels::learned_table_weight_gradient(grid_kernels::DeviceGrid{queue}, samples, values, dy, d_table, workspace);
}

PIPEWRIGHT_STORED_AS_ANY(embedding);
PIPEWRIGHT_STORED_AS_ANY(embedding_weight_gradient);
PIPEWRIGHT_STORED_AS_ANY(learned_table);
PIPEWRIGHT_STORED_AS_ANY(learned_table_weight_gradient);

}  // namespace pipewright::gpu_kernels
