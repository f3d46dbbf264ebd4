// What a driver tells of its GPUs, and which one a thread works with.
#include <cstdio>
#include <cstring>

#include "tests/made_up_cuda/made_up_cuda.hpp"

using namespace pipewright::tests::made_up_cuda;

namespace {

// What stands behind cudaGetErrorName and cudaGetErrorString.
struct ErrorWords {
  cudaError_t error;
  const char *name, *words;
};
constexpr ErrorWords kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported",
     "peer access is not supported between these two devices"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
};
const ErrorWords* words_of(cudaError_t error) {
  for (const ErrorWords& one : kErrors)
    if (one.error == error) return &one;
  return nullptr;
}

bool joined[kMostGpus][kMostGpus] = {};  // by cudaDeviceEnablePeerAccess

bool is_gpu(int device) {
  return device >= 0 && device < cuda().machine.gpus;
}

// A toolkit's program runs on a driver for the same major version.
bool driver_is_enough() {
  return cuda().machine.driver / 1000 >= CUDART_VERSION / 1000;
}

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorWords* const found = words_of(error);
  return found == nullptr ? "cudaErrorMadeUp" : found->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorWords* const found = words_of(error);
  return found == nullptr ? "an error that is made up" : found->words;
}

cudaError_t cudaGetLastError() {
  Cuda& all = cuda();
  const Lock lock(all.mutex);
  Thread& thread = this_thread();
  const cudaError_t last = thread.last;
  thread.last = all.broken[thread.device];
  return last;
}

cudaError_t cudaDriverGetVersion(int* version) {
  return call("cudaDriverGetVersion", [&](Lock&) { return *version = cuda().machine.driver, cudaSuccess; });
}

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", [&](Lock&) {
    *count = 0;
    if (!driver_is_enough()) return cudaErrorInsufficientDriver;
    *count = cuda().machine.gpus;
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&](Lock&) {
    if (!driver_is_enough()) return cudaErrorInsufficientDriver;
    if (!is_gpu(device)) return cudaErrorInvalidDevice;
    this_thread().device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", [&](Lock&) { return *device = this_thread().device, cudaSuccess; });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call("cudaGetDeviceProperties", [&](Lock&) {
    if (!is_gpu(device)) return cudaErrorInvalidDevice;
    const Machine& machine = cuda().machine;
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "made-up GPU");
    properties->major = machine.architecture / 10, properties->minor = machine.architecture % 10;
    properties->multiProcessorCount = machine.sms;
    properties->totalGlobalMem = static_cast<std::size_t>(machine.memory);
    properties->l2CacheSize = 1 << 20;
    properties->memoryBusWidth = 4096;
    properties->maxThreadsPerBlock = 1024;
    properties->warpSize = 32;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call("cudaDeviceGetAttribute", [&](Lock&) {
    if (!is_gpu(device)) return cudaErrorInvalidDevice;
    const Machine& machine = cuda().machine;
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount: *value = machine.sms; break;
      case cudaDevAttrClockRate: *value = 2'000'000; break;  // kHz
      case cudaDevAttrMemoryClockRate: *value = 3'000'000; break;
      case cudaDevAttrL2CacheSize: *value = 1 << 20; break;
      case cudaDevAttrComputeCapabilityMajor: *value = machine.architecture / 10; break;
      case cudaDevAttrComputeCapabilityMinor: *value = machine.architecture % 10; break;
      default: cuda().ledger.note("an attribute that is not made up: " + std::to_string(attribute)); break;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  return call("cudaDeviceGetPCIBusId", [&](Lock&) {
    if (!is_gpu(device)) return cudaErrorInvalidDevice;
    std::snprintf(text, static_cast<std::size_t>(size), "0000:%02d:00.0", device + 1);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call("cudaDeviceGetStreamPriorityRange", [&](Lock&) { return *least = 0, *greatest = -5, cudaSuccess; });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int other) {
  return call("cudaDeviceCanAccessPeer", [&](Lock&) {
    if (!is_gpu(device) || !is_gpu(other)) return cudaErrorInvalidDevice;
    return *can = device != other && cuda().machine.peer, cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned) {
  return call("cudaDeviceEnablePeerAccess", [&](Lock&) {
    if (!is_gpu(other) || other == this_thread().device) return cudaErrorInvalidDevice;
    if (!cuda().machine.peer) return cudaErrorPeerAccessUnsupported;
    bool& here = joined[this_thread().device][other];
    if (here) return cudaErrorPeerAccessAlreadyEnabled;
    return here = true, cudaSuccess;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int other) {
  return call("cudaDeviceDisablePeerAccess", [&](Lock&) {
    if (!is_gpu(other)) return cudaErrorInvalidDevice;
    bool& here = joined[this_thread().device][other];
    if (!here) return cudaErrorPeerAccessNotEnabled;
    return here = false, cudaSuccess;
  });
}

}  // extern "C"
