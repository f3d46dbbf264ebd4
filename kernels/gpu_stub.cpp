// gpu_api.hpp in a build without nvcc.
#include "kernels/gpu_api.hpp"
#include "kernels/probes.hpp"

namespace pipewright::kernels {
namespace {

[[noreturn]] void none() {
  throw GpuError(gpu_status());
}

}  // namespace

int gpu_count() {
  return 0;
}

std::string gpu_status() {
  return "no GPU kernels in this build (" PIPEWRIGHT_NO_CUDA ")";
}

GpuSystem gpu_system() {
  GpuSystem system;
  system.missing = gpu_status();
  return system;
}

Bytes gpu_free_memory(int) {
  none();
}

GpuMemory::GpuMemory(int, Bytes, GpuMemoryKind) {
  none();
}
GpuMemory::~GpuMemory() = default;
GpuMemory& GpuMemory::operator=(GpuMemory&&) noexcept {
  return *this;
}

GpuEvent::GpuEvent(int) {
  none();
}
GpuEvent::~GpuEvent() = default;
void GpuEvent::record(GpuStream) {
  none();
}
void GpuEvent::wait_on(GpuStream) const {
  none();
}
void GpuEvent::wait() const {
  none();
}
bool GpuEvent::passed() const {
  none();
}
bool comparable(const GpuEvent&, const GpuEvent&) {
  none();
}
Time elapsed(const GpuEvent&, const GpuEvent&) {
  none();
}
void gpu_copy(GpuStream, void*, const void*, Bytes, GpuCopy) {
  none();
}
void gpu_copy_between(GpuStream, void*, int, const void*, int, Bytes) {
  none();
}
int gpu_of(const void*) {
  none();
}
void gpu_use(int) {
  none();
}
void gpu_join(int, int) {
  none();
}
void gpu_part(int, int) {
  none();
}
void gpu_zero(GpuStream, void*, Bytes) {
  none();
}
void gpu_finish(GpuStream) {
  none();
}

VirtualDevices::VirtualDevices(int, int, int) {
  none();
}
VirtualDevices::~VirtualDevices() = default;
std::string group_events(int) {
  none();
}
bool comparable_groups(const VirtualDevices&) {
  none();
}

GpuOwnStream::GpuOwnStream(int) {
  none();
}
GpuOwnStream::~GpuOwnStream() = default;

void launch_delay(GpuStream, Time) {
  none();
}
void launch_sm_probe(GpuStream, int, Time, std::uint32_t*) {
  none();
}

}  // namespace pipewright::kernels
