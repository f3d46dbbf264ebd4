// Inside kernels/ only: NVIDIA's libraries, opened when they are there. They are too large to ship (cuBLASLt: half a
// gigabyte), so nothing of them is linked.
//
// Looked for: the loader's own places (LD_LIBRARY_PATH, ld.so.cache), $CUDA_HOME/lib64, /usr/local/cuda/lib64. The
// Python packages of these libraries keep them in .../site-packages/nvidia/*/lib: name that in LD_LIBRARY_PATH.
//
// Tests: tests/runtime/nccl_test.cpp, by a library of the tests' own
#pragma once

#include <cstddef>
#include <string>

#include "kernels/gpu_api.hpp"

namespace pipewright::kernels {

struct OpenLibrary {
  GpuLibrary told;
  void* handle = nullptr;  // of dlopen; stays open. nullptr: not found
  std::string why;         // it was not, as the loader says of the last place
};

// `instead`: the one place where it is looked for; "": the places above.
OpenLibrary opened(const char* name, const char* use, const std::string& file, const std::string& instead = "");

void* symbol(const OpenLibrary& library, const char* name);  // throws GpuError when it is not there

// symbol_of<decltype(&cublasLtGetVersion)>(library, "cublasLtGetVersion")
template <class Function>
Function symbol_of(const OpenLibrary& library, const char* name) {
  return reinterpret_cast<Function>(symbol(library, name));
}

// cuBLASLt, opened at the first call, once. Its header, which gives the types of its functions, comes with CUDA; a
// toolkit may lack it: then cublas_lt.cpp is left out for no_cublas_lt.cpp.
constexpr const char* kCublasLtUse = "matrix products of linear layers (run.kernels: library)";
const OpenLibrary& cublas_lt_library();

std::string dotted(std::size_t major, std::size_t minor, std::size_t patch);  // "2.28.9"

}  // namespace pipewright::kernels
