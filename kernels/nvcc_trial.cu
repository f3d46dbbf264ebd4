// Compiled when the build is configured: can this nvcc compile for the architectures asked for? The products of
// tensor_products.cu need the most: tensor cores for bf16.
#include <cuda_bf16.h>
#include <mma.h>

__global__ void trial(__nv_bfloat16* value) {
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __nv_bfloat16, nvcuda::wmma::row_major> a;
  nvcuda::wmma::load_matrix_sync(a, value, 16);
  value[threadIdx.x] = a.x[0];
}
