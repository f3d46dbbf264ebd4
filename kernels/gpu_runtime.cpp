#include <cmath>
#include <mutex>

#include "kernels/cuda_calls.hpp"
#include "kernels/probes.hpp"
#include "kernels/sm_groups.hpp"

namespace pipewright::kernels {

// ---- memory ---------------------------------------------------------------------------------------------------------

GpuMemory::GpuMemory(int device, Bytes bytes, GpuMemoryKind kind) : bytes_(bytes), kind_(kind) {
  use_device(device);
  const auto size = static_cast<std::size_t>(bytes.value);
  const std::string what = " of " + std::to_string(bytes.value) + " bytes on GPU " + std::to_string(device);
  if (kind == GpuMemoryKind::Device)
    check(cudaMalloc(&data_, size), "cudaMalloc" + what);
  else
    check(cudaMallocHost(&data_, size), "cudaMallocHost" + what);
}

GpuMemory::~GpuMemory() {
  if (data_ == nullptr) return;
  let_go(kind_ == GpuMemoryKind::Device ? cudaFree(data_) : cudaFreeHost(data_));
}

GpuMemory& GpuMemory::operator=(GpuMemory&& other) noexcept {
  std::swap(data_, other.data_), std::swap(bytes_, other.bytes_), std::swap(kind_, other.kind_);
  return *this;
}

// ---- streams, events and copies -------------------------------------------------------------------------------------

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

GpuEvent::GpuEvent(int device) {
  use_device(device);
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "cudaEventCreate");
  event_ = event;
}

GpuEvent::~GpuEvent() {
  if (event_ != nullptr) let_go(cudaEventDestroy(static_cast<cudaEvent_t>(event_)));
}

namespace {

// A new event in the context of a stream; null where there is no way to it.
cudaEvent_t event_beside(GpuStream stream) {
  static const auto context_of = driver_function<PFN_cuStreamGetCtx_v9020>("cuStreamGetCtx", 9020);
  static const auto push = driver_function<PFN_cuCtxPushCurrent_v4000>("cuCtxPushCurrent", 4000);
  static const auto pop = driver_function<PFN_cuCtxPopCurrent_v4000>("cuCtxPopCurrent", 4000);
  static const auto create = driver_function<PFN_cuEventCreate_v2000>("cuEventCreate", 2000);
  if (context_of == nullptr || push == nullptr || pop == nullptr || create == nullptr) return nullptr;
  CUcontext context = nullptr, popped = nullptr;
  if (context_of(stream_of(stream), &context) != CUDA_SUCCESS) return nullptr;
  static std::mutex one;  // a group's context is current to one thread at a time
  const std::lock_guard lock(one);
  if (push(context) != CUDA_SUCCESS) return nullptr;
  CUevent event = nullptr;
  const CUresult made = create(&event, CU_EVENT_DEFAULT);
  static_cast<void>(pop(&popped));  // what was current before is so again, as `use_device` remembers
  return made == CUDA_SUCCESS ? event : nullptr;
}

}  // namespace

// An event and its stream must be of one context (cuda.h, cuEventRecord). Events are made in the GPU's primary context,
// streams of SM groups in green contexts, which retain it; no document says that this is one context to the driver.
// Where it is not, the event is made anew in the stream's own.
void GpuEvent::record(GpuStream stream) {
  cudaError_t error = cudaEventRecord(static_cast<cudaEvent_t>(event_), stream_of(stream));
  if (error == cudaErrorInvalidResourceHandle)
    if (const cudaEvent_t event = event_beside(stream); event != nullptr) {
      let_go(cudaEventDestroy(static_cast<cudaEvent_t>(event_)));
      static_cast<void>(cudaGetLastError());
      event_ = event, moved_ = true;
      error = cudaEventRecord(event, stream_of(stream));
    }
  check(error, "cudaEventRecord");
}

void GpuEvent::wait_on(GpuStream stream) const {
  check(cudaStreamWaitEvent(stream_of(stream), static_cast<cudaEvent_t>(event_), 0), "cudaStreamWaitEvent");
}

void GpuEvent::wait() const {
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)), "cudaEventSynchronize");
}

bool GpuEvent::passed() const {
  const cudaError_t state = cudaEventQuery(static_cast<cudaEvent_t>(event_));
  if (state == cudaErrorNotReady) return static_cast<void>(cudaGetLastError()), false;
  check(state, "cudaEventQuery");
  return true;
}

Time elapsed(const GpuEvent& from, const GpuEvent& to) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(from.event_), static_cast<cudaEvent_t>(to.event_)),
        "cudaEventElapsedTime");
  return {std::llround(static_cast<double>(milliseconds) * 1e6)};
}

bool comparable(const GpuEvent& from, const GpuEvent& to) {
  float milliseconds = 0;
  const cudaError_t error =
      cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(from.event_), static_cast<cudaEvent_t>(to.event_));
  if (error == cudaErrorInvalidResourceHandle || error == cudaErrorInvalidValue)
    return static_cast<void>(cudaGetLastError()), false;
  check(error, "cudaEventElapsedTime");
  return true;
}

void gpu_copy(GpuStream stream, void* to, const void* from, Bytes bytes, GpuCopy direction) {
  const cudaMemcpyKind kind = direction == GpuCopy::HostToDevice   ? cudaMemcpyHostToDevice
                              : direction == GpuCopy::DeviceToHost ? cudaMemcpyDeviceToHost
                                                                   : cudaMemcpyDeviceToDevice;
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes.value), kind, stream_of(stream)),
        "cudaMemcpyAsync of " + std::to_string(bytes.value) + " bytes");
}

void gpu_copy_between(GpuStream stream, void* to, int to_device, const void* from, int from_device, Bytes bytes) {
  check(cudaMemcpyPeerAsync(to, to_device, from, from_device, static_cast<std::size_t>(bytes.value), stream_of(stream)),
        "cudaMemcpyPeerAsync of " + std::to_string(bytes.value) + " bytes from GPU " + std::to_string(from_device) +
            " to GPU " + std::to_string(to_device));
}

int gpu_of(const void* address) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, address), "cudaPointerGetAttributes");
  if (attributes.type != cudaMemoryTypeDevice) throw GpuError("an address of the host where one of a GPU is needed");
  return attributes.device;
}

void gpu_use(int device) {
  use_device(device);
}

void gpu_join(int device, int other) {
  use_device(device);
  const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) return static_cast<void>(cudaGetLastError());
  check(error, "cudaDeviceEnablePeerAccess from GPU " + std::to_string(device) + " to GPU " + std::to_string(other));
}

void gpu_part(int device, int other) {
  use_device(device);
  const cudaError_t error = cudaDeviceDisablePeerAccess(other);
  if (error == cudaErrorPeerAccessNotEnabled) return static_cast<void>(cudaGetLastError());
  check(error, "cudaDeviceDisablePeerAccess from GPU " + std::to_string(device) + " to GPU " + std::to_string(other));
}

void gpu_zero(GpuStream stream, void* block, Bytes bytes) {
  check(cudaMemsetAsync(block, 0, static_cast<std::size_t>(bytes.value), stream_of(stream)),
        "cudaMemsetAsync of " + std::to_string(bytes.value) + " bytes");
}

void gpu_finish(GpuStream stream) {
  check(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
}

// ---- virtual devices ------------------------------------------------------------------------------------------------

VirtualDevices::VirtualDevices(int device, int groups, int streams_each) : device_(device) {
  use_device(device);
  check(cudaFree(nullptr), "cudaFree (opening GPU " + std::to_string(device) + ")");  // makes the primary context
  try {
    cut(groups, streams_each);
  } catch (...) {
    close();
    throw;
  }
}

void VirtualDevices::cut(int groups, int streams_each) {
  if (groups == 1) {
    int sms = 0;
    check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device_), "cudaDeviceGetAttribute");
    groups_.push_back({.sms = sms});
    for (int i = 0; i < streams_each; ++i) {
      cudaStream_t stream = nullptr;
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      groups_.back().streams.push_back(stream);
    }
    return;
  }
  const GreenContextCalls& calls = green_context_calls();
  SmGroups split = split_sms(device_, groups);
  if (static_cast<int>(split.groups.size()) < groups)
    throw GpuError("GPU " + std::to_string(device_) + " gives " + std::to_string(split.groups.size()) +
                   " SM groups where " + std::to_string(groups) +
                   " were asked for; use at most that many virtual devices");
  left_over_ = split.left_over(), how_ = split.how;
  for (std::vector<CUdevResource>& group : split.groups) {
    CUdevResourceDesc description{};
    check(calls, calls.describe(&description, group.data(), static_cast<unsigned>(group.size())),
          "cuDevResourceGenerateDesc");
    CUgreenCtx context = nullptr;
    check(calls, calls.create(&context, description, device_, CU_GREEN_CTX_DEFAULT_STREAM), "cuGreenCtxCreate");
    groups_.push_back({.context = context});
    CUdevResource given{};
    check(calls, calls.resource_of_context(context, &given, CU_DEV_RESOURCE_TYPE_SM), "cuGreenCtxGetDevResource");
    groups_.back().sms = static_cast<int>(given.sm.smCount);
    for (int i = 0; i < streams_each; ++i) {
      CUstream stream = nullptr;
      check(calls, calls.create_stream(&stream, context, CU_STREAM_NON_BLOCKING, 0), "cuGreenCtxStreamCreate");
      groups_.back().streams.push_back(stream);
    }
  }
}

// Streams first: after their context, not even they can be destroyed.
void VirtualDevices::close() noexcept {
  for (const Group& group : groups_)
    for (const GpuStream stream : group.streams)
      let_go(cudaStreamDestroy(stream_of(stream)));
  for (const Group& group : groups_)
    if (group.context != nullptr)
      static_cast<void>(green_context_calls().destroy(static_cast<CUgreenCtx>(group.context)));
  groups_.clear();
}

VirtualDevices::~VirtualDevices() {
  close();
}

bool comparable_groups(const VirtualDevices& devices) {
  GpuEvent one(devices.device()), other(devices.device());
  one.record(devices.stream(0)), one.wait();
  other.record(devices.stream(1)), other.wait();
  return comparable(one, other);
}

std::string group_events(int device) try {
  const VirtualDevices devices(device, 2, 1);
  const GpuStream one = devices.stream(0), other = devices.stream(1);
  GpuEvent begin(device), end(device), behind(device);
  begin.record(one);
  launch_empty(one);
  end.record(one);
  end.wait_on(other);
  launch_empty(other);
  behind.record(other);
  behind.wait();
  static_cast<void>(elapsed(begin, end));
  const std::string which = end.moved() ? "made in each group's own context" : "those of the whole GPU";
  return which + (comparable_groups(devices) ? "" : "; not comparable between groups");
} catch (const GpuError& error) {
  return std::string("fail: ") + error.what();
}

}  // namespace pipewright::kernels
