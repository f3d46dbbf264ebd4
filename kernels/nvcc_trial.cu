// Compiled when the build is configured: can this nvcc compile for the architectures asked for?
#include <cuda_bf16.h>

__global__ void trial(__nv_bfloat16* value, float of) {
  value[threadIdx.x] = __float2bfloat16_rn(of);
}
