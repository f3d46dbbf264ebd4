// Inside kernels/ only: the libraries whose headers come with CUDA, which give the types of their functions. A toolkit
// may lack them: without cublasLt.h, cublas_lt.cpp is left out for no_cublas_lt.cpp; NCCL's is not needed (nccl.hpp).
#pragma once

#include "kernels/open_library.hpp"

namespace pipewright {

constexpr const char* kCublasLtUse = "matrix products of linear layers (run.kernels: library)";

// Opened at the first call, once.
const OpenLibrary& cublas_lt_library();
const OpenLibrary& cudnn_library();

}  // namespace pipewright
