// Products of linear layers by tensor_tiles.hpp. Factors whose rows are whole pieces of 16 bytes are copied to shared
// memory piece by piece beside the arithmetic, others value by value; what is computed of them has the same bits.
#include "kernels/device_tensor_block.cuh"
#include "kernels/tensor_products.hpp"

namespace pipewright::gpu_kernels::tensor_products {
namespace {

using grid_kernels::kBlock;
using grid_kernels::Piece;

// Of narrow tiles two blocks per SM: 128 registers a thread, 48 KiB of shared memory a block; of wide ones one: 72 KiB.
template <class Product>
__global__ void __launch_bounds__(kBlock, Product::kBlocksPerSm) product_kernel(Product product, std::int64_t tiles) {
  extern __shared__ Piece pieces[];
  tensor_tiles::DeviceTensorBlock<typename Product::Held> block(pieces);
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
    product(block, tile);
}

struct Launch {
  const Queue& queue;
  std::int64_t sms() const { return std::max<std::int64_t>(1, queue.blocks / kBlocksPerSm); }
  template <class Product>
  void operator()(const char* name, const Product& product) const {
    const std::int64_t tiles = product.tiles();
    if (tiles <= 0) return;
    constexpr int kBytes = Product::kPieces * static_cast<int>(sizeof(Piece));
    if constexpr (kBytes > 48 << 10)  // more than a block has unasked
      check(cudaFuncSetAttribute(product_kernel<Product>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), name);
    product_kernel<<<static_cast<unsigned>(std::min<std::int64_t>(tiles, queue.blocks)), kBlock, kBytes,
                     stream_of(queue.stream)>>>(product, tiles);
    check_launch(name);
  }
};

}  // namespace

template <class T>
void linear(const Queue& queue, I rows, I in, I out, const T* x, const T* w, const T* bias, T* y) {
  tensor_tiles::linear(Launch{queue}, rows, in, out, x, w, bias, y);
}
template <class T>
void linear_input_gradient(const Queue& queue, I rows, I in, I out, const T* dy, const T* w, T* dx) {
  tensor_tiles::linear_input_gradient(Launch{queue}, rows, in, out, dy, w, dx);
}
template <class T>
void linear_weight_gradient(const Queue& queue, I rows, I in, I out, const T* x, const T* dy, float* dw) {
  tensor_tiles::linear_weight_gradient(Launch{queue}, rows, in, out, x, dy, dw);
}

PIPEWRIGHT_STORED_IN_16_BITS(linear);
PIPEWRIGHT_STORED_IN_16_BITS(linear_input_gradient);
PIPEWRIGHT_STORED_IN_16_BITS(linear_weight_gradient);

}  // namespace pipewright::gpu_kernels::tensor_products
