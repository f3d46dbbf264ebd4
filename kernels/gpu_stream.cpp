#include "kernels/gpu_stream.hpp"

#include "kernels/cuda_calls.hpp"

#if __has_include(<nccl.h>)
#include <cstddef>

#include <nccl.h>

#include "kernels/nccl_calls.hpp"

namespace pipewright {
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version) &&
              offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(kNcclLeastVersion == NCCL_VERSION(2, 14, 0));
static_assert(kNcclSuccess == ncclSuccess && kNcclInProgress == ncclInProgress);
static_assert(kNcclInt8 == ncclInt8 && kNcclFloat32 == ncclFloat32 && kNcclSum == ncclSum);
}  // namespace pipewright
#endif

namespace pipewright {

GpuOwnStream::GpuOwnStream(int device) {
  use_device(device);
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority");
  stream_ = stream;
}

GpuOwnStream::~GpuOwnStream() {
  if (stream_ != nullptr) let_go(cudaStreamDestroy(stream_of(stream_)));
}

}  // namespace pipewright
