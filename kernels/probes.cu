#include "kernels/cuda_calls.hpp"
#include "kernels/probes.hpp"

namespace pipewright::kernels {
namespace {

__device__ std::int64_t global_time() {
  std::int64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__device__ void stay_for(std::int64_t nanoseconds) {
  const std::int64_t begin = global_time();
  while (global_time() - begin < nanoseconds) {
  }
}

__global__ void empty_kernel() {}

__global__ void delay_kernel(std::int64_t nanoseconds) {
  stay_for(nanoseconds);
}

__global__ void clock_kernel(std::int64_t stretch, SmClockReading* reading) {
  const std::int64_t time = global_time(), clock = clock64();
  stay_for(stretch);
  reading->nanoseconds = global_time() - time;
  reading->cycles = clock64() - clock;
}

__global__ void sm_kernel(std::int64_t stay, std::uint32_t* ids) {
  std::uint32_t id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  ids[blockIdx.x] = id;
  stay_for(stay);
}

constexpr std::int64_t kGateNanoseconds = 10'000'000'000;

__global__ void gate_kernel(volatile std::int32_t* flags) {
  const std::int64_t begin = global_time();
  while (flags[0] == 0)
    if (global_time() - begin > kGateNanoseconds) {
      flags[1] = 1;
      return;
    }
}

volatile std::int32_t* flags_in(const GpuMemory& memory) {
  return static_cast<volatile std::int32_t*>(memory.data());
}

std::int64_t l2_bytes(int device) {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute (size of the L2)");
  return bytes;
}

}  // namespace

void check_kernels_run() {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, empty_kernel);
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
    static_cast<void>(cudaGetLastError());
    throw GpuError("the kernels are built for architectures " PIPEWRIGHT_GPU_ARCHS
                   ", not for this GPU: configure with -Dgpu_archs=");
  }
  check(error, "cudaFuncGetAttributes");
}

void launch_empty(GpuStream stream) {
  empty_kernel<<<1, 1, 0, stream_of(stream)>>>();
  check_launch("empty");
}

void launch_delay(GpuStream stream, Time time) {
  delay_kernel<<<1, 1, 0, stream_of(stream)>>>(time.value);
  check_launch("delay");
}

void launch_clock_probe(GpuStream stream, Time stretch, SmClockReading* reading) {
  clock_kernel<<<1, 1, 0, stream_of(stream)>>>(stretch.value, reading);
  check_launch("clock probe");
}

void launch_sm_probe(GpuStream stream, int blocks, Time stay, std::uint32_t* ids) {
  sm_kernel<<<static_cast<unsigned>(blocks), 32, 0, stream_of(stream)>>>(stay.value, ids);
  check_launch("SM probe");
}

L2Flush::L2Flush(int device) : block_(device, {l2_bytes(device)}) {}

void L2Flush::launch(GpuStream stream) {
  gpu_zero(stream, block_.data(), block_.bytes());
}

StreamGate::StreamGate(int device) : flags_(device, {2 * sizeof(std::int32_t)}, GpuMemoryKind::PinnedHost) {
  flags_in(flags_)[0] = 1;
}

StreamGate::~StreamGate() {
  flags_in(flags_)[0] = 1;
}

void StreamGate::close(GpuStream stream) {
  flags_in(flags_)[0] = 0;
  flags_in(flags_)[1] = 0;
  gate_kernel<<<1, 1, 0, stream_of(stream)>>>(flags_in(flags_));
  check_launch("gate");
}

void StreamGate::open() {
  flags_in(flags_)[0] = 1;
  if (flags_in(flags_)[1] != 0) throw GpuError("a stream stood at its gate for 10 s: the timing is worth nothing");
}

}  // namespace pipewright::kernels
