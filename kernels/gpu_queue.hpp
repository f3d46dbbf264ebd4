// Where a kernel runs: a stream, and how many thread blocks it may take. Results do not depend on the blocks.
#pragma once

#include "kernels/gpu_api.hpp"

namespace pipewright {
class LibraryProducts;
}

namespace pipewright::gpu_kernels {

struct Queue {
  GpuStream stream = nullptr;
  int blocks = 1;                      // at most; of 256 threads each
  bool tf32 = false;                   // products of fp32 round their factors to tf32
  LibraryProducts* library = nullptr;  // linear layers' products are its; null: own ones
};

// Eight blocks of 256 threads fill an SM (2048 threads, architectures 8.0, 9.0 and 10.0).
constexpr int kBlocksPerSm = 8;
inline Queue queue_of(GpuStream stream, int sms) {
  return {stream, kBlocksPerSm * sms};
}

}  // namespace pipewright::gpu_kernels
