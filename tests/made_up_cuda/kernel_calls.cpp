// Kernels, as the host's part of what nvcc compiles makes itself known and launches: by names. The probes do what they
// are for (kernels/probes.cu); the others take their time and do nothing.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "tests/made_up_cuda/made_up_cuda.hpp"

using namespace pipewright::tests::made_up_cuda;

namespace {

// Names. Filled before main(), by constructors of other files.
std::map<const void*, std::string>& kernels() {
  static auto* const all = new std::map<const void*, std::string>;
  return *all;
}

struct Grid {
  dim3 blocks, threads;
  std::size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Grid> grids;  // of launches that are being made

constexpr std::int64_t kClock = 2;  // cycles per ns

std::int64_t whole(const void* argument) {
  std::int64_t value = 0;
  std::memcpy(&value, argument, sizeof value);
  return value;
}

template <class T>
T* address(const void* argument) {
  T* value = nullptr;
  std::memcpy(&value, argument, sizeof value);
  return value;
}

// What a launch asks of its stream. `arguments`: the kernel's, in their order.
Item work_of(const std::string& name, void** arguments, const Grid& grid, const Stream& stream) {
  const auto is = [&](const char* probe) {
    return name.find("probes_cu") != std::string::npos && name.find(probe) != std::string::npos;
  };
  Item item;
  item.takes = cuda().machine.kernel_ns;
  if (is("delay_kernel")) {
    item.takes = whole(arguments[0]);
  } else if (is("clock_kernel")) {
    item.takes = whole(arguments[0]);
    auto* const reading = address<std::int64_t>(arguments[1]);  // SmClockReading: cycles, nanoseconds
    item.effect = [reading, ns = item.takes] { reading[0] = kClock * ns, reading[1] = ns; };
  } else if (is("sm_kernel")) {
    item.takes = whole(arguments[0]);
    auto* const ids = address<std::uint32_t>(arguments[1]);
    std::vector<std::uint32_t> sms;
    for (const Sms& part : stream.sms)
      for (int i = 0; i < part.count; ++i)
        sms.push_back(static_cast<std::uint32_t>(part.first + i));
    item.effect = [ids, sms, blocks = grid.blocks.x] {
      for (std::size_t block = 0; block < blocks; ++block)
        ids[block] = sms[block % sms.size()];
    };
  } else if (is("gate_kernel")) {
    item.takes = 0;
    item.gate = address<volatile std::int32_t>(arguments[0]);
  }
  return item;
}

cudaError_t fault_of(const Grid& grid) {
  const dim3 &b = grid.blocks, &t = grid.threads;
  constexpr unsigned kMostOther = 65535, kMostThreads = 1024;
  if (b.x == 0 || b.y == 0 || b.z == 0 || t.x == 0 || t.y == 0 || t.z == 0) return cudaErrorInvalidConfiguration;
  if (b.x > INT32_MAX || b.y > kMostOther || b.z > kMostOther) return cudaErrorInvalidConfiguration;
  if (t.x * t.y * t.z > kMostThreads) return cudaErrorInvalidConfiguration;
  return grid.shared > 48 << 10 ? cudaErrorInvalidValue : cudaSuccess;
}

// Machine code for an architecture runs on the later ones of its generation, the portable form of the last one of
// PIPEWRIGHT_GPU_ARCHS on all later ones.
bool built_for_this_gpu() {
  const int gpu = cuda().machine.architecture;
  int last = 0;
  for (const char* text = PIPEWRIGHT_GPU_ARCHS; text != nullptr; text = std::strchr(text, ',')) {
    text += *text == ',';
    last = std::atoi(text);
    if (last / 10 == gpu / 10 && last <= gpu) return true;
  }
  return gpu >= last;
}

cudaError_t launch(const void* function, const Grid& grid, void** arguments) {
  return call("cudaLaunchKernel", [&](Lock&) {
    if (!built_for_this_gpu()) return cudaErrorNoKernelImageForDevice;
    const auto kernel = kernels().find(function);
    Stream* const stream = stream_of("cudaLaunchKernel", grid.stream);
    if (kernel == kernels().end()) return cudaErrorInvalidDeviceFunction;
    if (stream == nullptr || stream->device != this_thread().device) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t fault = fault_of(grid); fault != cudaSuccess) return fault;
    Cuda& all = cuda();
    Item item = work_of(kernel->second, arguments, grid, *stream);
    const Failure& fail = all.machine.fail;
    if (all.ledger.count("kernel") == fail.nth && fail.function == "kernel")
      item.effect = [&all, device = stream->device, error = static_cast<cudaError_t>(fail.error)] {
        all.broken[device] = error;
        all.streams.clear(device);
      };
    return ask(*stream, std::move(item)), cudaSuccess;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return call("cudaFuncGetAttributes", [&](Lock&) {
    if (!built_for_this_gpu()) return cudaErrorNoKernelImageForDevice;
    if (!kernels().contains(function)) return cudaErrorInvalidDeviceFunction;
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    return cudaSuccess;
  });
}

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  kernels()[host] = name;
}

unsigned __cudaPushCallConfiguration(dim3 blocks, dim3 threads, std::size_t shared, CUstream_st* stream) {
  grids.push_back({blocks, threads, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* blocks, dim3* threads, std::size_t* shared, void* stream) {
  const Grid grid = grids.back();
  grids.pop_back();
  *blocks = grid.blocks, *threads = grid.threads, *shared = grid.shared;
  *static_cast<cudaStream_t*>(stream) = grid.stream;
  return cudaSuccess;
}

// From CUDA 13 on a launch goes by these two, before by the third.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 blocks, dim3 threads, void** arguments, std::size_t shared,
                               cudaStream_t stream) {
  return launch(kernel, {blocks, threads, shared, stream}, arguments);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 blocks, dim3 threads, void** arguments, std::size_t shared,
                             cudaStream_t stream) {
  return launch(function, {blocks, threads, shared, stream}, arguments);
}

}  // extern "C"
