// Products of 16-bit values by tensor cores, sums in fp32: c {m, n} = a {m, k} b, in tiles of 128 x 128.
//
// As in tiles.hpp, every value is one sum along k from the first to the last 16, whatever the grid; what the tensor
// core does within 16 is fixed by the architecture. Eight warps share a tile, 64 x 32 of it each.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include "kernels/device_grid.cuh"
#include "kernels/storage.hpp"
#include "kernels/tensor_products.hpp"

namespace pipewright::gpu_kernels::tensor_products {
namespace {

using grid_kernels::kBlock;
namespace wmma = nvcuda::wmma;

// The compiler's own name of a stored type; the bits are the same.
template <class T>
struct CoreOf;
template <>
struct CoreOf<Bf16> {
  using type = __nv_bfloat16;
};
template <>
struct CoreOf<Fp16> {
  using type = __half;
};

constexpr int kTile = 128, kDepth = 32, kCore = 16;
constexpr int kWarpRows = 64, kWarpColumns = 32;    // of a warp: 4 x 2 cores
constexpr int kWarpsAcross = kTile / kWarpColumns;  // 4, and 2 down
constexpr int kPitch = kDepth + 8;                  // rows of shared memory do not meet in one bank; a multiple of 8
static_assert(kTile / kWarpRows * kWarpsAcross * grid_kernels::kWarp == kBlock);

// b is read as {n, k} (b_is_transposed: x w^T), or {k, n}. Rows of a and b need not begin at a multiple of anything.
// c is stored as a and b are, or summed up in fp32.
template <class T, class C>
struct TensorProduct {
  std::int64_t m, n, k;
  const T *a, *b;
  std::int64_t a_row, a_k, b_k, b_column;  // strides
  C* c;
  const T* bias;  // per column, or null
  bool add;
};

template <class T, class C>
__device__ void load(const TensorProduct<T, C>& p, T (*a)[kPitch], T (*b)[kPitch], std::int64_t top, std::int64_t left,
                     std::int64_t first) {
  const T zero(0.0f);
  const int t = static_cast<int>(threadIdx.x);
#pragma unroll 4
  for (int at = t; at < kTile * kDepth; at += kBlock) {
    const int row = p.a_k == 1 ? at / kDepth : at % kTile, deep = p.a_k == 1 ? at % kDepth : at / kTile;
    a[row][deep] = top + row < p.m && first + deep < p.k ? p.a[(top + row) * p.a_row + (first + deep) * p.a_k] : zero;
    const int column = p.b_k == 1 ? at / kDepth : at % kTile, low = p.b_k == 1 ? at % kDepth : at / kTile;
    b[column][low] =
        left + column < p.n && first + low < p.k ? p.b[(first + low) * p.b_k + (left + column) * p.b_column] : zero;
  }
}

template <class T, class C>
__global__ void __launch_bounds__(kBlock)
    product_kernel(TensorProduct<T, C> p, std::int64_t tiles, std::int64_t across) {
  using Half = typename CoreOf<T>::type;
  __shared__ alignas(32) std::uint16_t a_bits[kTile][kPitch], b_bits[kTile][kPitch];
  T(*const a)[kPitch] = reinterpret_cast<T(*)[kPitch]>(a_bits);
  T(*const b)[kPitch] = reinterpret_cast<T(*)[kPitch]>(b_bits);
  __shared__ alignas(32) float out[kBlock / grid_kernels::kWarp][kCore][kCore];
  const int warp = static_cast<int>(threadIdx.x) / grid_kernels::kWarp;
  const int lane = static_cast<int>(threadIdx.x) % grid_kernels::kWarp;
  const int down = warp / kWarpsAcross * kWarpRows, right = warp % kWarpsAcross * kWarpColumns;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t top = tile / across * kTile, left = tile % across * kTile;
    wmma::fragment<wmma::accumulator, kCore, kCore, kCore, float> sums[4][2];
    for (auto& row : sums)
      for (auto& sum : row)
        wmma::fill_fragment(sum, 0.0f);
    for (std::int64_t first = 0; first < p.k; first += kDepth) {
      load(p, a, b, top, left, first);
      __syncthreads();
#pragma unroll
      for (int deep = 0; deep < kDepth; deep += kCore) {
        wmma::fragment<wmma::matrix_a, kCore, kCore, kCore, Half, wmma::row_major> x[4];
        wmma::fragment<wmma::matrix_b, kCore, kCore, kCore, Half, wmma::col_major> y[2];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          wmma::load_matrix_sync(x[i], reinterpret_cast<const Half*>(&a_bits[down + i * kCore][deep]), kPitch);
#pragma unroll
        for (int j = 0; j < 2; ++j)
          wmma::load_matrix_sync(y[j], reinterpret_cast<const Half*>(&b_bits[right + j * kCore][deep]), kPitch);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 2; ++j)
            wmma::mma_sync(sums[i][j], x[i], y[j], sums[i][j]);
      }
      __syncthreads();  // before the next load writes there
    }
    // By way of shared memory: which thread holds which value of a core is the architecture's affair.
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        wmma::store_matrix_sync(&out[warp][0][0], sums[i][j], kCore, wmma::mem_row_major);
        __syncwarp();
        for (int at = lane; at < kCore * kCore; at += grid_kernels::kWarp) {
          const std::int64_t row = top + down + i * kCore + at / kCore;
          const std::int64_t column = left + right + j * kCore + at % kCore;
          if (row >= p.m || column >= p.n) continue;
          C& value = p.c[row * p.n + column];
          const float sum = out[warp][at / kCore][at % kCore] + (p.bias == nullptr ? 0.0f : p.bias[column]);
          value = C(p.add ? value + sum : sum);
        }
        __syncwarp();
      }
  }
}

template <class T, class C>
void launch(const Queue& queue, const char* name, const TensorProduct<T, C>& product) {
  const std::int64_t down = (product.m + kTile - 1) / kTile, across = (product.n + kTile - 1) / kTile;
  const std::int64_t tiles = down * across;
  if (tiles <= 0) return;
  product_kernel<<<static_cast<unsigned>(std::min<std::int64_t>(tiles, queue.blocks)), kBlock, 0,
                   stream_of(queue.stream)>>>(product, tiles, across);
  check_launch(name);
}

}  // namespace

template <class T>
void linear(const Queue& queue, I rows, I in, I out, const T* x, const T* w, const T* bias, T* y) {
  launch(queue, "linear", TensorProduct<T, T>{rows, out, in, x, w, in, 1, 1, in, y, bias, false});
}
template <class T>
void linear_input_gradient(const Queue& queue, I rows, I in, I out, const T* dy, const T* w, T* dx) {
  launch(queue, "linear_input_gradient", TensorProduct<T, T>{rows, in, out, dy, w, out, 1, in, 1, dx, nullptr, false});
}
template <class T>
void linear_weight_gradient(const Queue& queue, I rows, I in, I out, const T* x, const T* dy, float* dw) {
  launch(queue, "linear_weight_gradient",
         TensorProduct<T, float>{out, in, rows, dy, x, 1, out, in, 1, dw, nullptr, true});
}

PIPEWRIGHT_STORED_IN_16_BITS(linear);
PIPEWRIGHT_STORED_IN_16_BITS(linear_input_gradient);
PIPEWRIGHT_STORED_IN_16_BITS(linear_weight_gradient);

}  // namespace pipewright::gpu_kernels::tensor_products
