// Compiled when the build is configured: can this nvcc compile for the architectures asked for? The products of
// tensor_products.cu need the most: copies to shared memory beside the arithmetic, and tensor cores for bf16.
#include <cuda_bf16.h>

__global__ void trial(__nv_bfloat16* value, unsigned shared) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(__cvta_generic_to_global(value)));
  float sums[4] = {};
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(shared));
  value[threadIdx.x] = __float2bfloat16_rn(sums[0]);
}
