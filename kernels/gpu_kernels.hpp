// The arithmetic of GPUs: the functions of runtime/backends/cpu_kernels.hpp, with a grid in front (grid.hpp). On a GPU
// that is a Queue (gpu_queue.hpp), and all pointers are the device's. Formulas, layouts and constants are the CPU's;
// gradients of inputs are overwritten, gradients of parameters are added to; what takes workspace says how much.
//
// S: how tensors are stored, float, Bf16 or Fp16. Arithmetic, sums, statistics and gradients of parameters are fp32.
//
// Each is a launch or a few, in the order of the stream. Every sum runs in an order that the shapes fix: no atomics, no
// split sums, the same bits for any number of blocks. They are not the bits of the CPU, whose order is another one.
// The products of linear layers are the exception where the queue names the library (gpu_queue.hpp).
//
// nvcc compiles them for a Queue, as often as the .cu files list them.
//
// Tests: tests/kernels/emulated_test.cpp (any machine), tests/kernels/gpu_test.cpp (a GPU)
#pragma once

#include <span>

#include "kernels/attention.hpp"
#include "kernels/convolutions.hpp"
#include "kernels/dropout.hpp"
#include "kernels/gpu_queue.hpp"
#include "kernels/optimizers.hpp"
#include "kernels/rows.hpp"
#include "kernels/tables.hpp"
#include "kernels/values.hpp"
#include "kernels/windows.hpp"

namespace pipewright::kernels::grid_kernels {

// Replaces the n values of every buffer by the sum of all, around a ring (rings.hpp): member i's part in queue i. All
// on one device, or on devices that reach one another's memory; `device` is where the events lie.
void ring_all_reduce(int device, std::span<const Queue> queues, std::span<float* const> buffers, I n);

}  // namespace pipewright::kernels::grid_kernels
