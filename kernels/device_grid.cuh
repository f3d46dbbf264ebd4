// The grid of grid.hpp on a GPU: teams are warps and blocks. Included by .cu files only.
#pragma once

#include <algorithm>

#include "kernels/cuda_calls.hpp"
#include "kernels/gpu_queue.hpp"
#include "kernels/grid.hpp"
#include "kernels/storage.hpp"

// A kernel's function for the types that tensors are stored in.
#define PIPEWRIGHT_STORED_IN_16_BITS(name)  \
  template decltype(name<Bf16>) name<Bf16>; \
  template decltype(name<Fp16>) name<Fp16>
#define PIPEWRIGHT_STORED_AS_ANY(name)        \
  template decltype(name<float>) name<float>; \
  PIPEWRIGHT_STORED_IN_16_BITS(name)

namespace pipewright::grid_kernels {

template <class V, class Join>
__device__ V fold_warp(V value, const Join& join) {
  // Lane t joins lane t xor half: the same pairs as folding by halves, and every lane gets the result. Joins commute.
  for (int half = kWarp / 2; half > 0; half /= 2)
    value = join(value, __shfl_xor_sync(0xffffffffu, value, half));
  return value;
}
template <class S, class Join>
__device__ Two<S> fold_warp(Two<S> value, const Join& join) {
  for (int half = kWarp / 2; half > 0; half /= 2) {
    const Two<S> other = {__shfl_xor_sync(0xffffffffu, value.a, half), __shfl_xor_sync(0xffffffffu, value.b, half)};
    value = join(value, other);
  }
  return value;
}

struct WarpTeam {
  int lane;
  static constexpr __device__ int size() { return kWarp; }
  template <class F>
  __device__ void each(const F& f) const {
    f(lane);
    __syncwarp();
  }
  template <class F>
  __device__ auto sum(const F& f) const {
    return fold_warp(f(lane), Add{});
  }
  template <class F>
  __device__ auto max(const F& f) const {
    return fold_warp(f(lane), Larger{});
  }
};

struct BlockTeam {
  static constexpr __device__ int size() { return kBlock; }
  template <class F>
  __device__ void each(const F& f) const {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  template <class F>
  __device__ auto sum(const F& f) const {
    return folded(f(static_cast<int>(threadIdx.x)), Add{});
  }
  template <class F>
  __device__ auto max(const F& f) const {
    return folded(f(static_cast<int>(threadIdx.x)), Larger{});
  }

 private:
  template <class V, class Join>
  __device__ static V folded(V value, const Join& join) {
    constexpr int kWarps = kBlock / kWarp;
    __shared__ V of_warps[kWarps];
    value = fold_warp(value, join);
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
    __syncthreads();
    V warps[kWarps];
    for (int w = 0; w < kWarps; ++w)
      warps[w] = of_warps[w];
    __syncthreads();  // before the next sum writes there
    for (int half = kWarps / 2; half > 0; half /= 2)
      for (int w = 0; w < half; ++w)
        warps[w] = join(warps[w], warps[w + half]);
    return warps[0];
  }
};

template <class Body>
__global__ void __launch_bounds__(kBlock) values_kernel(std::int64_t n, Body body) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBlock;
#pragma unroll 4
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x; i < n; i += step)
    body(i);
}

template <class Body>
__global__ void __launch_bounds__(kBlock) warp_rows_kernel(std::int64_t rows, Body body) {
  constexpr int kWarps = kBlock / kWarp;
  const WarpTeam team = {static_cast<int>(threadIdx.x % kWarp)};
  for (std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp; r < rows;
       r += static_cast<std::int64_t>(gridDim.x) * kWarps)
    body(team, r);
}

template <class Body>
__global__ void __launch_bounds__(kBlock) block_rows_kernel(std::int64_t rows, Body body) {
  for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x)
    body(BlockTeam{}, r);
}

template <class T>
struct DeviceRegisters {
  T value;
  __device__ T& of(int) { return value; }
};

template <class Shared, class Thread, class Body>
__global__ void __launch_bounds__(kBlock) tiles_kernel(std::int64_t tiles, Body body) {
  __shared__ Shared shared;
  DeviceRegisters<Thread> registers;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
    body(BlockTeam{}, shared, registers, tile);
}

// Launches into a queue, with at most its number of blocks, and no more than there is work for.
struct DeviceGrid {
  const gpu_kernels::Queue& queue;
  bool factors_in_tf32() const { return queue.tf32; }

  template <class Body>
  void values(const char* name, std::int64_t n, const Body& body) const {
    if (n <= 0) return;
    values_kernel<<<blocks((n + kBlock - 1) / kBlock), kBlock, 0, stream_of(queue.stream)>>>(n, body);
    check_launch(name);
  }
  template <class Body>
  void rows(const char* name, std::int64_t rows, std::int64_t length, const Body& body) const {
    if (rows <= 0) return;
    constexpr std::int64_t kWarps = kBlock / kWarp;
    if (length <= kWarpRow)
      warp_rows_kernel<<<blocks((rows + kWarps - 1) / kWarps), kBlock, 0, stream_of(queue.stream)>>>(rows, body);
    else
      block_rows_kernel<<<blocks(rows), kBlock, 0, stream_of(queue.stream)>>>(rows, body);
    check_launch(name);
  }
  template <class Shared, class Thread, class Body>
  void tiles(const char* name, std::int64_t tiles, const Body& body) const {
    if (tiles <= 0) return;
    tiles_kernel<Shared, Thread><<<blocks(tiles), kBlock, 0, stream_of(queue.stream)>>>(tiles, body);
    check_launch(name);
  }

 private:
  unsigned blocks(std::int64_t work) const { return static_cast<unsigned>(std::min<std::int64_t>(work, queue.blocks)); }
};

}  // namespace pipewright::grid_kernels
