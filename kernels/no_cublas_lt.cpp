// cuBLASLt where its header was not with the toolkit: left out of the build, and said so wherever it is asked for.
#include "kernels/cublas_lt.hpp"
#include "kernels/library_products.hpp"
#include "kernels/open_library.hpp"

namespace pipewright::kernels {

const OpenLibrary& cublas_lt_library() {
  static const OpenLibrary library = [] {
    OpenLibrary out;
    out.told.name = "cuBLASLt", out.told.use = kCublasLtUse;
    out.told.left_out = "this build was made without cublasLt.h (part of the CUDA toolkit's cuBLAS)";
    return out;
  }();
  return library;
}

struct Matmul::Parts {};

Matmul::Matmul(GpuPrecision, const MatmulShape&, int, Bytes, MatmulResult) {
  throw GpuError("cuBLASLt: " + cublas_lt_library().told.left_out);
}
Matmul::~Matmul() = default;
Matmul::Matmul(Matmul&&) noexcept = default;

void Matmul::launch(GpuStream, const void*, const void*, void*, bool, void*) const {}

Bytes Matmul::workspace() const {
  return {};
}

MatmulAlgorithm Matmul::algorithm() const {
  return {};
}

bool has_library_products() {
  return false;
}

}  // namespace pipewright::kernels
