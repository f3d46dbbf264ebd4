// Linear layers by the queue's library where it is there and has an algorithm for the shape, else by own kernels.
//
// Own: linear (with the bias), linear_input_gradient, linear_weight_gradient (without it), add_bias, bias_gradient, all
// of a queue. The library stores a product before the bias is added to it: one rounding more in 16 bits.
//
// Tests: tests/kernels/linear_layers_test.cpp (any machine), tests/kernels/gpu_test.cpp (needs a GPU)
#pragma once

#include <cstdint>

namespace pipewright::linear_layers {

using I = std::int64_t;

template <class Own, class Queue, class T>
void forward(const Queue& queue, I rows, I in, I out, const T* x, const T* w, const T* bias, T* y) {
  if (queue.library == nullptr || !queue.library->multiply(queue.stream, {rows, out, in, false, true}, x, w, y))
    return Own::linear(queue, rows, in, out, x, w, bias, y);
  if (bias != nullptr) Own::add_bias(queue, rows, out, bias, y);
}

template <class Own, class Queue, class T>
void input_gradient(const Queue& queue, I rows, I in, I out, const T* dy, const T* w, T* dx) {
  if (queue.library == nullptr || !queue.library->multiply(queue.stream, {rows, in, out, false, false}, dy, w, dx))
    Own::linear_input_gradient(queue, rows, in, out, dy, w, dx);
}

// Added to dw and, unless it is null, db.
template <class Own, class Queue, class T>
void weight_gradient(const Queue& queue, I rows, I in, I out, const T* x, const T* dy, float* dw, float* db,
                     float* workspace) {
  if (queue.library == nullptr || !queue.library->add_product(queue.stream, {out, in, rows, true, false}, dy, x, dw))
    Own::linear_weight_gradient(queue, rows, in, out, x, dy, dw);
  if (db != nullptr) Own::bias_gradient(queue, rows, out, dy, db, workspace);
}

}  // namespace pipewright::linear_layers
