// The block of tensor_tiles.hpp on a GPU, from architecture 8.0 on. Included by .cu files only.
#pragma once

#include "kernels/device_grid.cuh"
#include "kernels/tensor_tiles.hpp"

namespace pipewright::tensor_tiles {

// Four matrices of 8 x 8 from shared memory: lane 8 i + r says where row r of matrix i lies. Lane l gets of each the
// values at row l / 4, columns 2 (l % 4) and the next one, or of the transposed matrix.             [PTX] ldmatrix
template <bool kTransposed>
__device__ inline void load_matrices(Matrices& to, std::uint32_t row) {
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.at[0]), "=r"(to.at[1]), "=r"(to.at[2]), "=r"(to.at[3])
                 : "r"(row)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.at[0]), "=r"(to.at[1]), "=r"(to.at[2]), "=r"(to.at[3])
                 : "r"(row)
                 : "memory");
}

// sums {16, 8} += a {16, 16} b {16, 8}: a's matrices as rows 0 and 8 of k 0, then of k 8; b's k 0 and k 8. [PTX] mma
#define PIPEWRIGHT_CORE(name, type)                                                                            \
  __device__ inline void name(float(&sums)[4], const Matrices& a, std::uint32_t b_low, std::uint32_t b_high) { \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                                 \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "                                                            \
        "{%8, %9}, {%0, %1, %2, %3};"                                                                          \
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                           \
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b_low), "r"(b_high));                    \
  }
PIPEWRIGHT_CORE(multiply_bf16, "bf16")
PIPEWRIGHT_CORE(multiply_fp16, "f16")
#undef PIPEWRIGHT_CORE

struct DeviceWarp {
  template <class V>
  using Lanes = V;
  std::uint32_t shared;
  __device__ int index() const { return static_cast<int>(threadIdx.x) / grid_kernels::kWarp; }
  template <bool kTransposed, class Place>
  __device__ void load(Matrices& to, const Place& place) const {
    const int lane = static_cast<int>(threadIdx.x) % grid_kernels::kWarp;
    load_matrices<kTransposed>(to, shared + static_cast<std::uint32_t>(place(lane)) * sizeof(Piece));
  }
  template <class T, class SumsOf>
  __device__ void multiply(const SumsOf& sums, const Matrices& a, const Matrices& b, int half) const {
    const int t = static_cast<int>(threadIdx.x);
    if constexpr (std::is_same_v<T, Bf16>)
      multiply_bf16(sums(t), a, b.at[half], b.at[half + 2]);
    else
      multiply_fp16(sums(t), a, b.at[half], b.at[half + 2]);
  }
};

template <class Held>
struct DeviceTensorBlock {
  Piece* pieces;
  std::uint32_t shared;  // the same, as an address of shared memory
  Held held;
  __device__ explicit DeviceTensorBlock(Piece* memory)
      : pieces(memory), shared(static_cast<std::uint32_t>(__cvta_generic_to_shared(memory))) {}

  __device__ Held& sums(int) { return held; }
  template <class F>
  __device__ void each(const F& f) const {
    f(static_cast<int>(threadIdx.x));
  }
  template <class F>
  __device__ void warps(const F& f) const {
    f(DeviceWarp{shared});
  }
  __device__ void barrier() const { __syncthreads(); }

  // Begun now, there once its group was waited for; zeros where it is not present.
  __device__ void copy(int, int place, const void* from, bool present) const {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared + static_cast<std::uint32_t>(place) * 16),
                 "l"(__cvta_generic_to_global(from)), "r"(present ? 16 : 0)
                 : "memory");
  }
  __device__ void store(int, int place, const Piece& piece) const { pieces[place] = piece; }
  __device__ void close_copies(int) const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  // Until at most kOpen groups of this thread are under way.
  template <int kOpen>
  __device__ void wait_copies(int) const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
  }
};

}  // namespace pipewright::tensor_tiles
