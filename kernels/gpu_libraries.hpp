// Inside kernels/ only: NVIDIA's libraries, opened when they are there. They are too large to ship (cuBLASLt: half a
// gigabyte), so nothing of them is linked; their headers give the types of the functions.
//
// Looked for: the loader's own places (LD_LIBRARY_PATH, ld.so.cache), $CUDA_HOME/lib64, /usr/local/cuda/lib64. The
// Python packages of these libraries keep them in .../site-packages/nvidia/*/lib: name that in LD_LIBRARY_PATH.
#pragma once

#include "kernels/gpu_api.hpp"

namespace pipewright {

struct OpenLibrary {
  GpuLibrary told;
  void* handle = nullptr;  // of dlopen; stays open. nullptr: not found
};

// Opened at the first call, once.
const OpenLibrary& cublas_lt_library();
const OpenLibrary& cudnn_library();
const OpenLibrary& nccl_library();

void* symbol(const OpenLibrary& library, const char* name);  // throws GpuError when it is not there

// symbol_of<decltype(&cublasLtGetVersion)>(library, "cublasLtGetVersion")
template <class Function>
Function symbol_of(const OpenLibrary& library, const char* name) {
  return reinterpret_cast<Function>(symbol(library, name));
}

}  // namespace pipewright
