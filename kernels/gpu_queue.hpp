// Where a kernel runs: a stream, and how many thread blocks it may take. Results do not depend on the blocks.
#pragma once

#include "kernels/gpu_api.hpp"
#include "kernels/gpu_shapes.hpp"
#include "kernels/grid.hpp"

namespace pipewright::kernels {
class LibraryProducts;
}

namespace pipewright::kernels::grid_kernels {

// A grid (grid.hpp) on a GPU.
struct Queue {
  GpuStream stream = nullptr;
  int blocks = 1;                      // at most; of 256 threads each
  bool tf32 = false;                   // products of fp32 round their factors to tf32
  LibraryProducts* library = nullptr;  // linear layers' products are its; null: plain kernels

  // Launches, compiled by nvcc: device_grid.cuh.
  template <class Body>
  void values(const char* name, I n, const Body& body) const;
  template <class Body>
  void rows(const char* name, I rows, const Body& body) const;
  // By the library; c: stored as a and b are, or in fp32 and added to. False: nothing was done, there is no algorithm.
  bool multiply(const MatmulShape& shape, const void* a, const void* b, void* c, bool add) const;
};

// Eight blocks of 256 threads fill an SM (2048 threads, architectures 8.0, 9.0 and 10.0).
constexpr int kBlocksPerSm = 8;
inline Queue queue_of(GpuStream stream, int sms) {
  return {stream, kBlocksPerSm * sms};
}

}  // namespace pipewright::kernels::grid_kernels
