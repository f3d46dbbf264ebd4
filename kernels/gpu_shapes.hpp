// Shapes of products by the library, and of convolutions, windows and attention, as runtime/backends/cpu_kernels.hpp has
// them.
#pragma once

#include <compare>
#include <cstdint>

#include "core/rooms.hpp"

namespace pipewright::kernels {

// c {m, n} = op(a) op(b) [, + c]: kernels/cublas_lt.hpp.
struct MatmulShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  auto operator<=>(const MatmulShape&) const = default;
};

struct GpuConvShape {
  std::int64_t channels_in, height_in, width_in;
  std::int64_t channels_out, height_out, width_out;
  std::int64_t kernel_height, kernel_width, stride, padding_height, padding_width, groups;
};

struct GpuPoolShape {
  std::int64_t channels, height_in, width_in, height_out, width_out, kernel, stride, padding;
};

// Query i of q sees key j when j <= i + keys - queries (causal), or always. Query head h reads key head
// h * key_heads / heads. Strides count values from one row to the next.
struct GpuAttentionShape {
  std::int64_t heads, key_heads, key_size, value_size, queries, keys;
  bool causal;
  std::int64_t query_stride, key_stride, value_stride;
};

}  // namespace pipewright::kernels
