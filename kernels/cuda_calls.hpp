// Inside kernels/ only: calls of the CUDA runtime and driver whose failure becomes a GpuError that names them.
#pragma once

#include <cstdlib>
#include <string>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/gpu_api.hpp"

namespace pipewright::kernels {

// "invalid argument (cudaErrorInvalidValue)"
inline std::string words(cudaError_t error) {
  return std::string(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) + ")";
}

inline void check(cudaError_t error, const std::string& call) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // so that the next call is not blamed for this one
  if (error == cudaErrorMemoryAllocation) throw GpuOutOfMemory(call + ": " + words(error));
  throw GpuError(call + ": " + words(error));
}

// Of a call that gives something back, in a destructor: what it says is dropped, and no later call is blamed for it.
inline void let_go(cudaError_t error) {
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
}

// After a launch: a wrong grid, or no code for this GPU. What a kernel does wrong while it runs is told by
// `gpu_finish`.
inline void check_launch(const char* kernel) {
  check(cudaGetLastError(), std::string("kernel ") + kernel);
}

// A function of the driver, found at run time: the binary starts where there is no driver. `version`: the CUDA version
// whose form of the function is meant, 12040. nullptr where the driver has none.
template <class Function>
Function driver_function(const char* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  if (cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  return result == cudaDriverEntryPointSuccess ? reinterpret_cast<Function>(found) : nullptr;
}

inline cudaStream_t stream_of(GpuStream stream) {
  return static_cast<cudaStream_t>(stream);
}

// Before the first call of a program that reaches the driver, which reads it once. Streams beyond the number of
// hardware connections (8 by default) wait for one another; an own setting of the user stays.
inline void ask_for_connections() {
  static const int asked = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  static_cast<void>(asked);
}

// Makes the device's primary context current for this thread. Nobody here changes it otherwise.
inline void use_device(int device) {
  thread_local int current = -1;
  if (current == device) return;
  ask_for_connections();
  check(cudaSetDevice(device), "cudaSetDevice of GPU " + std::to_string(device));
  current = device;
}

}  // namespace pipewright::kernels
