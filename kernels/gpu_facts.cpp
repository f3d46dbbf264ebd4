#include <algorithm>
#include <array>

#include "kernels/nccl.hpp"
#include "kernels/open_library.hpp"
#include "kernels/probes.hpp"
#include "kernels/sm_groups.hpp"

namespace pipewright::kernels {
namespace {

GpuLibrary cudnn_told() {
  OpenLibrary library = opened("cuDNN", "nothing yet: convolutions are own kernels", "libcudnn.so.9");
  if (library.handle == nullptr) return library.told;
  const std::size_t version = symbol_of<std::size_t (*)()>(library, "cudnnGetVersion")();  // 91900: 9.19.0
  library.told.version = dotted(version / 10000, version / 100 % 100, version % 100);
  return library.told;
}

// 13000 -> "13.0"
std::string cuda_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::int64_t attribute(int device, cudaDeviceAttr which) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, device) != cudaSuccess) return static_cast<void>(cudaGetLastError()), 0;
  return value;
}

void add_groups(GpuFacts& facts) {
  try {
    for (const int asked : {2, 4, 8}) {
      const SmGroups split = split_sms(facts.device, asked);
      facts.least_group = split.least, facts.group_step = split.step;
      facts.splits.push_back({asked, static_cast<int>(split.groups.size()), split.sms, split.left_over(), split.how});
    }
  } catch (const GpuError& error) {
    facts.no_groups = error.what();
  }
}

void add_peers(GpuFacts& facts, int devices) {
  for (int other = 0; other < devices; ++other) {
    if (other == facts.device) continue;
    int direct = 0;
    if (cudaDeviceCanAccessPeer(&direct, facts.device, other) != cudaSuccess) static_cast<void>(cudaGetLastError());
    facts.peers.push_back({other, direct != 0});
  }
}

// Everything that could fail is told in `refusal`.
GpuFacts facts_of(int device, int devices) {
  GpuFacts facts;
  facts.device = device;
  try {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties of GPU " + std::to_string(device));
    facts.name = properties.name;
    std::array<char, 32> bus{};
    if (cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device) == cudaSuccess) facts.bus = bus.data();
    facts.major = properties.major, facts.minor = properties.minor;
    facts.sms = properties.multiProcessorCount;
    facts.memory = {static_cast<std::int64_t>(properties.totalGlobalMem)};
    facts.l2 = {properties.l2CacheSize};
    facts.memory_bus_bits = properties.memoryBusWidth;
    facts.sm_clock_khz = attribute(device, cudaDevAttrClockRate);
    facts.memory_clock_khz = attribute(device, cudaDevAttrMemoryClockRate);
    add_groups(facts);
    add_peers(facts, devices);
    facts.free_memory = gpu_free_memory(device);
    check_kernels_run();
  } catch (const GpuError& error) {
    facts.refusal = error.what();
  }
  return facts;
}

// Devices, or why there are none.
struct Devices {
  int count = 0;
  std::string missing;
};
Devices devices_here() {
  Devices out;
  ask_for_connections();
  const cudaError_t error = cudaGetDeviceCount(&out.count);
  if (error == cudaSuccess && out.count > 0) return out;
  static_cast<void>(cudaGetLastError());
  out.count = 0;
  int driver = 0;
  const bool no_driver = cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0;
  if (no_driver)
    out.missing = "no NVIDIA driver (libcuda.so.1) on this machine";
  else if (error == cudaErrorInsufficientDriver)
    out.missing = "the driver knows CUDA " + cuda_version(driver) + ", this build needs " +
                  cuda_version(CUDART_VERSION) + ": update the driver";
  else if (error == cudaErrorNoDevice || error == cudaSuccess)
    out.missing = "a driver, but no GPU (or CUDA_VISIBLE_DEVICES hides it)";
  else
    out.missing = "cudaGetDeviceCount: " + words(error);
  return out;
}

}  // namespace

int gpu_count() {
  return devices_here().count;
}

Bytes gpu_free_memory(int device) {
  use_device(device);
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo of GPU " + std::to_string(device));
  return {static_cast<std::int64_t>(free)};
}

std::string gpu_status() {
  const Devices devices = devices_here();
  if (devices.count == 0) return "kernels built with CUDA " + cuda_version(CUDART_VERSION) + "; " + devices.missing;
  return "kernels built with CUDA " + cuda_version(CUDART_VERSION) + "; " + std::to_string(devices.count) +
         (devices.count == 1 ? " GPU" : " GPUs") + ", see pipewright doctor";
}

GpuSystem gpu_system() {
  GpuSystem system;
  system.toolkit = cuda_version(CUDART_VERSION);
  system.architectures = PIPEWRIGHT_GPU_ARCHS;
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) system.driver = cuda_version(driver);
  const Devices devices = devices_here();
  system.missing = devices.missing;
  for (int device = 0; device < devices.count; ++device)
    system.gpus.push_back(facts_of(device, devices.count));
  system.libraries = {cublas_lt_library().told, cudnn_told(), nccl_told()};
  return system;
}

}  // namespace pipewright::kernels
