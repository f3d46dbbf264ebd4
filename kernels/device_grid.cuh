// The grid of grid.hpp on a GPU. Included by .cu files only.
#pragma once

#include <algorithm>

#include "kernels/cuda_calls.hpp"
#include "kernels/gpu_queue.hpp"
#include "kernels/storage.hpp"

// A kernel's function on a GPU, for the types that tensors are stored in.
#define PIPEWRIGHT_STORED_AS_ANY(name)                      \
  template decltype(name<Queue, float>) name<Queue, float>; \
  template decltype(name<Queue, Bf16>) name<Queue, Bf16>;   \
  template decltype(name<Queue, Fp16>) name<Queue, Fp16>

namespace pipewright::kernels::grid_kernels {

struct DeviceTeam {
  int lane;
  template <class F>
  __device__ void each(const F& f) const {
    f(lane);
    __syncwarp();
  }
  template <class F>
  __device__ auto sum(const F& f) const {
    return folded(f(lane), Add{});
  }
  template <class F>
  __device__ auto max(const F& f) const {
    return folded(f(lane), Larger{});
  }

 private:
  // Lane t joins lane t xor half: the same pairs as folding by halves, and every lane gets the result. Joins commute.
  template <class V, class Join>
  __device__ static V folded(V value, const Join& join) {
    for (int half = kWarp / 2; half > 0; half /= 2)
      value = join(value, __shfl_xor_sync(0xffffffffu, value, half));
    return value;
  }
};

template <class Body>
__global__ void __launch_bounds__(kBlock) values_kernel(I n, Body body) {
  for (I i = I{blockIdx.x} * kBlock + threadIdx.x; i < n; i += I{gridDim.x} * kBlock)
    body(i);
}

template <class Body>
__global__ void __launch_bounds__(kBlock) rows_kernel(I rows, Body body) {
  constexpr int kWarps = kBlock / kWarp;
  const DeviceTeam team = {static_cast<int>(threadIdx.x % kWarp)};
  for (I r = I{blockIdx.x} * kWarps + threadIdx.x / kWarp; r < rows; r += I{gridDim.x} * kWarps)
    body(team, r);
}

// With at most the queue's number of blocks, and no more than there is work for.
inline unsigned blocks_for(const Queue& queue, I work, I of_block) {
  return static_cast<unsigned>(std::min<I>((work + of_block - 1) / of_block, queue.blocks));
}

// Used: by other files, too, whose compiler does not know what is in here.
template <class Body>
[[gnu::used]] void Queue::values(const char* name, I n, const Body& body) const {
  if (n <= 0) return;
  values_kernel<<<blocks_for(*this, n, kBlock), kBlock, 0, stream_of(stream)>>>(n, body);
  check_launch(name);
}
template <class Body>
[[gnu::used]] void Queue::rows(const char* name, I rows, const Body& body) const {
  if (rows <= 0) return;
  rows_kernel<<<blocks_for(*this, rows, kBlock / kWarp), kBlock, 0, stream_of(stream)>>>(rows, body);
  check_launch(name);
}

}  // namespace pipewright::kernels::grid_kernels
