#include "kernels/device_grid.cuh"
#include "kernels/gpu_kernels.hpp"
#include "kernels/library_products.hpp"
#include "kernels/linear_layers.hpp"
#include "kernels/tensor_products.hpp"
#include "kernels/tiles.hpp"

namespace pipewright::gpu_kernels {

// Own products: of 16-bit values by tensor cores, of floats by tiles.
struct Own {
  template <class T>
  static constexpr bool kBySixteen = sizeof(T) == 2;

  template <class T>
  static void linear(const Queue& queue, I rows, I in, I out, const T* x, const T* w, const T* bias, T* y) {
    if constexpr (kBySixteen<T>)
      tensor_products::linear(queue, rows, in, out, x, w, bias, y);
    else
      grid_kernels::linear(grid_kernels::DeviceGrid{queue}, rows, in, out, x, w, bias, y);
  }
  template <class T>
  static void linear_input_gradient(const Queue& queue, I rows, I in, I out, const T* dy, const T* w, T* dx) {
    if constexpr (kBySixteen<T>)
      tensor_products::linear_input_gradient(queue, rows, in, out, dy, w, dx);
    else
      grid_kernels::linear_input_gradient(grid_kernels::DeviceGrid{queue}, rows, in, out, dy, w, dx);
  }
  template <class T>
  static void linear_weight_gradient(const Queue& queue, I rows, I in, I out, const T* x, const T* dy, float* dw) {
    if constexpr (kBySixteen<T>)
      tensor_products::linear_weight_gradient(queue, rows, in, out, x, dy, dw);
    else
      grid_kernels::linear_weight_gradient(grid_kernels::DeviceGrid{queue}, rows, in, out, x, dy, dw,
                                           static_cast<float*>(nullptr), static_cast<float*>(nullptr));
  }
  template <class T>
  static void add_bias(const Queue& queue, I rows, I out, const T* bias, T* y) {
    gpu_kernels::add_bias<T>(queue, rows, out, y, bias, nullptr, y);
  }
  template <class T>
  static void bias_gradient(const Queue& queue, I rows, I out, const T* dy, float* db, float* workspace) {
    gpu_kernels::bias_gradient(queue, rows, out, dy, db, workspace);
  }
};

template <class T>
void linear(const Queue& queue, I rows, I in, I out, const T* x, const T* w, const T* bias, T* y) {
  linear_layers::forward<Own>(queue, rows, in, out, x, w, bias, y);
}

template <class T>
void linear_input_gradient(const Queue& queue, I rows, I in, I out, const T* dy, const T* w, T* dx) {
  linear_layers::input_gradient<Own>(queue, rows, in, out, dy, w, dx);
}

template <class T>
void linear_weight_gradient(const Queue& queue, I rows, I in, I out, const T* x, const T* dy, float* dw, float* db,
                            float* workspace) {
  linear_layers::weight_gradient<Own>(queue, rows, in, out, x, dy, dw, db, workspace);
}

template <class T>
void attention(const Queue& queue, const GpuAttentionShape& shape, I samples, const T* q, const T* k, const T* v, T* y,
               T* p) {
  grid_kernels::attention(grid_kernels::DeviceGrid{queue}, shape, samples, q, k, v, y, p);
}

template <class T>
void attention_gradient(const Queue& queue, const GpuAttentionShape& shape, I samples, const T* q, const T* k,
                        const T* v, const T* p, const T* dy, T* dq, T* dk, T* dv, T* d_scores) {
  grid_kernels::attention_gradient(grid_kernels::DeviceGrid{queue}, shape, samples, q, k, v, p, dy, dq, dk, dv,
                                   d_scores);
}

PIPEWRIGHT_STORED_AS_ANY(linear);
PIPEWRIGHT_STORED_AS_ANY(linear_input_gradient);
PIPEWRIGHT_STORED_AS_ANY(linear_weight_gradient);
PIPEWRIGHT_STORED_AS_ANY(attention);
PIPEWRIGHT_STORED_AS_ANY(attention_gradient);

}  // namespace pipewright::gpu_kernels
