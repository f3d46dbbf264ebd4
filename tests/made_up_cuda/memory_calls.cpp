// Blocks of memory and what is moved between them.
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/made_up_cuda/made_up_cuda.hpp"

using namespace pipewright::tests::made_up_cuda;

namespace {

// Times that are made up: an order of magnitude, no more.
constexpr std::int64_t kStart = 2000;                                                      // ns
constexpr std::int64_t kOnDevice = 2000, kOverBus = 50, kBetweenGpus = 400, kZero = 4000;  // bytes per ns

std::int64_t total(const Machine& machine) {
  return machine.memory - kContextBytes;
}

std::int64_t held(int device) {
  return cuda().ledger.device_bytes(device);
}

// A recording takes no call that waits for the device.
bool recording() {
  return this_thread().recording != nullptr;
}

// As a driver does before it takes memory away.
void wait_for_device(int device, Lock& lock) {
  std::vector<Stream*> streams;
  for (const auto& stream : cuda().streams.all())
    if (stream->device == device) streams.push_back(stream.get());
  for (Stream* const stream : streams)
    if (cuda().streams.has(stream)) wait_for(*stream, lock);
}

bool overlap(const void* a, const void* b, std::int64_t bytes) {
  const auto one = reinterpret_cast<std::intptr_t>(a), other = reinterpret_cast<std::intptr_t>(b);
  return one < other + bytes && other < one + bytes;
}

// Asks for the copy; the ends have been looked at.
void ask_copy(Stream& stream, void* to, const void* from, std::int64_t bytes, std::int64_t per_ns) {
  Item item;
  item.takes = kStart + bytes / per_ns;
  const auto size = static_cast<std::size_t>(bytes);
  if (bytes <= cuda().machine.copy_up_to) item.effect = [to, from, size] { std::memcpy(to, from, size); };
  ask(stream, std::move(item));
}

}  // namespace

extern "C" {

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* all) {
  return call("cudaMemGetInfo", [&](Lock&) {
    const Machine& machine = cuda().machine;
    *all = static_cast<std::size_t>(machine.memory);
    *free = static_cast<std::size_t>(total(machine) - held(this_thread().device));
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  return call("cudaMalloc", [&](Lock&) {
    if (recording()) return cudaErrorStreamCaptureUnsupported;
    const int device = this_thread().device;
    const auto size = static_cast<std::int64_t>(bytes);
    if (size < 0 || size > total(cuda().machine) - held(device)) return cudaErrorMemoryAllocation;
    *address = cuda().ledger.new_block(size, device, Place::Device);
    return *address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

cudaError_t cudaFree(void* address) {
  return closing_call("cudaFree", [&](Lock& lock) {
    if (address == nullptr) return cudaSuccess;
    if (recording()) cuda().ledger.note("cudaFree while a stream records");
    wait_for_device(cuda().ledger.block_of(address).device, lock);
    return cuda().ledger.free_block("cudaFree", address, Place::Device) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  return call("cudaMallocHost", [&](Lock&) {
    if (recording()) return cudaErrorStreamCaptureUnsupported;
    *address = cuda().ledger.new_block(static_cast<std::int64_t>(bytes), this_thread().device, Place::Pinned);
    return *address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* address) {
  return closing_call("cudaFreeHost", [&](Lock& lock) {
    if (address == nullptr) return cudaSuccess;
    wait_for_device(cuda().ledger.block_of(address).device, lock);
    return cuda().ledger.free_block("cudaFreeHost", address, Place::Pinned) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  return call("cudaPointerGetAttributes", [&](Lock&) {
    const Block block = cuda().ledger.block_of(address);
    *attributes = {};
    attributes->type = block.place == Place::Device   ? cudaMemoryTypeDevice
                       : block.place == Place::Pinned ? cudaMemoryTypeHost
                                                      : cudaMemoryTypeUnregistered;
    attributes->device = block.place == Place::Elsewhere ? -2 : block.device;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t count, cudaMemcpyKind kind, cudaStream_t handle) {
  constexpr const char* kName = "cudaMemcpyAsync";
  return call(kName, [&](Lock& lock) {
    Ledger& ledger = cuda().ledger;
    const auto bytes = static_cast<std::int64_t>(count);
    Stream* const stream = stream_of(kName, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (kind != cudaMemcpyDeviceToHost && !ledger.inside(kName, to, bytes)) return cudaErrorInvalidValue;
    if (kind != cudaMemcpyHostToDevice && !ledger.inside(kName, from, bytes)) return cudaErrorInvalidValue;
    if (overlap(to, from, bytes)) ledger.note("a copy whose ends overlap");
    if (kind == cudaMemcpyDeviceToDevice) return ask_copy(*stream, to, from, bytes, kOnDevice), cudaSuccess;
    const bool pinned = ledger.block_of(kind == cudaMemcpyHostToDevice ? from : to).place == Place::Pinned;
    if (pinned) return ask_copy(*stream, to, from, bytes, kOverBus), cudaSuccess;
    if (recording()) return cudaErrorStreamCaptureUnsupported;
    ask_copy(*stream, to, from, bytes, kOverBus);
    wait_for(*stream, lock);  // it goes through memory of the driver's
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t count,
                                cudaStream_t handle) {
  constexpr const char* kName = "cudaMemcpyPeerAsync";
  return call(kName, [&](Lock&) {
    Ledger& ledger = cuda().ledger;
    const auto bytes = static_cast<std::int64_t>(count);
    Stream* const stream = stream_of(kName, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (!ledger.inside(kName, to, bytes) || !ledger.inside(kName, from, bytes)) return cudaErrorInvalidValue;
    if (ledger.block_of(to).device != to_device || ledger.block_of(from).device != from_device) {
      ledger.note("cudaMemcpyPeerAsync with an address of another GPU than it is told");
      return cudaErrorInvalidValue;
    }
    if (overlap(to, from, bytes)) ledger.note("a copy whose ends overlap");
    return ask_copy(*stream, to, from, bytes, kBetweenGpus), cudaSuccess;
  });
}

cudaError_t cudaMemsetAsync(void* block, int value, std::size_t count, cudaStream_t handle) {
  constexpr const char* kName = "cudaMemsetAsync";
  return call(kName, [&](Lock&) {
    const auto bytes = static_cast<std::int64_t>(count);
    Stream* const stream = stream_of(kName, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (!cuda().ledger.inside(kName, block, bytes)) return cudaErrorInvalidValue;
    Item item;
    item.takes = kStart + bytes / kZero;
    if (bytes <= cuda().machine.copy_up_to) item.effect = [block, value, count] { std::memset(block, value, count); };
    return ask(*stream, std::move(item)), cudaSuccess;
  });
}

}  // extern "C"
