#include "runtime/device_memory.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>

#include "core/ids.hpp"
#include "runtime/arena.hpp"

namespace pipewright::runtime {
namespace {

class HostMemory final : public DeviceMemory {
 public:
  explicit HostMemory(std::size_t size) : DeviceMemory(mapped(size)), size_(size) {}
  ~HostMemory() override { munmap(base(), size_); }

 private:
  static std::byte* mapped(std::size_t size) {
    void* const got = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (got == MAP_FAILED)
      throw OutOfArena(fmt::format("the system has no {} B for this worker; use fewer or smaller micro-batches", size));
    return static_cast<std::byte*>(got);
  }

  std::size_t size_;
};

class HostMover final : public Mover {
 public:
  void copy(void* to, const void* from, Bytes bytes) override {
    if (to != from && bytes.value > 0) std::memcpy(to, from, at(bytes.value));
  }
  void upload(void* to, const void* from_host, Bytes bytes) override { copy(to, from_host, bytes); }
  void download(void* to_host, const void* from, Bytes bytes) override { copy(to_host, from, bytes); }
  void sum(float* to, std::span<const float* const> terms, std::int64_t elements) override {
    std::array<float, 1024> sum;
    for (std::int64_t i = 0; i < elements;) {
      const std::int64_t n = std::min<std::int64_t>(static_cast<std::int64_t>(sum.size()), elements - i);
      std::memcpy(sum.data(), terms[0] + i, at(n) * sizeof(float));
      for (std::size_t t = 1; t < terms.size(); ++t)
        for (std::int64_t j = 0; j < n; ++j)
          sum[at(j)] += terms[t][i + j];
      std::memcpy(to + i, sum.data(), at(n) * sizeof(float));
      i += n;
    }
  }
};

}  // namespace

std::unique_ptr<DeviceMemory> Mover::staging(Bytes size) const {
  return host_memory(size);
}

std::unique_ptr<DeviceMemory> host_memory(Bytes size) {
  return std::make_unique<HostMemory>(at(std::max<std::int64_t>(size.value, 1)));
}

std::unique_ptr<Mover> host_mover() {
  return std::make_unique<HostMover>();
}

void fill_with_nan(Mover& mover, std::byte* block, std::int64_t bytes) {
  const std::vector<std::byte> ones(at(bytes), std::byte{0xff});
  mover.upload(block, ones.data(), {bytes});
}

}  // namespace pipewright::runtime
