// GPUs, behind plain C++: no CUDA type appears in this header.
//
// What a machine has (`gpu_system`), and what a run is made of: memory, streams, events, and *virtual devices*: one GPU
// whose streaming multiprocessors (SMs) are cut into K groups, each with streams of its own (the driver's "green
// contexts", CUDA 12.4 and later). In a build without kernels the same names exist: the system says why there are none,
// and everything else throws GpuError.
//
// Every failing call throws GpuError that names the call, its figures and the driver's words for what went wrong.
//
// Tests: tests/kernels/facts_test.cpp (any machine), tests/kernels/gpu_test.cpp (needs a GPU, skips without one)
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/units.hpp"

namespace pipewright::kernels {

// "cudaMalloc of 8589934592 bytes on GPU 0: out of memory (cudaErrorMemoryAllocation)"
class GpuError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
class GpuOutOfMemory : public GpuError {
 public:
  using GpuError::GpuError;
};

// ---- facts ----------------------------------------------------------------------------------------------------------

// What the driver gives when asked for a number of SM groups: perhaps fewer, perhaps larger ones.
struct GpuSplit {
  int asked = 0, groups = 0, sms = 0, left_over = 0;
  std::string how = {};  // "each put together of 2 groups of 8"; "": as asked for
};

struct GpuPeer {
  int device = 0;
  bool direct = false;  // one GPU reads the other's memory without the host
};

struct GpuFacts {
  int device = 0;
  std::string name;  // "NVIDIA H200"
  std::string bus;   // "0000:01:00.0"
  int major = 0, minor = 0;
  int sms = 0;
  Bytes memory, free_memory, l2;
  std::int64_t sm_clock_khz = 0, memory_clock_khz = 0;  // highest; 0: the driver does not tell
  int memory_bus_bits = 0;
  int least_group = 0, group_step = 0;  // SMs of the smallest group, and what its size is a multiple of; 0: not known
  std::vector<GpuSplit> splits;         // asked for 2, 4 and 8
  std::string no_groups;                // why SM groups cannot be made, or ""
  std::string group_events = {};        // `group_events()`, where somebody asked; else ""
  std::vector<GpuPeer> peers;
  std::string refusal;  // why the kernels of this build cannot run on it, or ""
};

// A library that is opened when it is there; nothing of it is needed to start.
struct GpuLibrary {
  std::string name;     // "cuBLASLt"
  std::string use;      // "matrix products"
  std::string version;  // "13.1.0.3"
  std::string path;     // where it was found; "": it was not
  std::vector<std::string> looked;
  std::string left_out = {};  // why the build cannot use it, wherever it lies; "": it can
};

struct GpuSystem {
  std::string missing;        // why no GPU can be used, or ""
  std::string toolkit;        // CUDA version of the compiler of this build: "13.0"; "": built without kernels
  std::string architectures;  // of its kernels: "80,86,89,90,100,120"
  std::string driver;         // newest CUDA version that the driver knows: "13.0"; "": no driver
  std::vector<GpuFacts> gpus;
  std::vector<GpuLibrary> libraries;  // cuBLASLt, cuDNN, NCCL
};
// Opens every GPU for a moment (its free memory is not known otherwise). Never throws for what is missing.
GpuSystem gpu_system();

// GPUs that kernels can run on; 0 in a build without kernels, and where there is no driver.
int gpu_count();

// Of a GPU, now; whoever else uses it counts, too.
Bytes gpu_free_memory(int device);

// One line: what of a GPU this build can use, or what is missing. "no GPU kernels in this build (nvcc not found)"
std::string gpu_status();

// ---- memory, streams, events ----------------------------------------------------------------------------------------

enum class GpuMemoryKind : std::uint8_t {
  Device,
  PinnedHost,  // the host's, which copies from and to the device reach without the CPU
};

// One block, given back when it goes: what a worker's arena is laid over. The cap of a virtual device is its size.
class GpuMemory {
 public:
  GpuMemory() = default;
  GpuMemory(int device, Bytes bytes, GpuMemoryKind kind = GpuMemoryKind::Device);
  ~GpuMemory();
  GpuMemory(GpuMemory&& other) noexcept { *this = std::move(other); }
  GpuMemory& operator=(GpuMemory&& other) noexcept;

  void* data() const { return data_; }
  Bytes bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  Bytes bytes_;
  GpuMemoryKind kind_ = GpuMemoryKind::Device;
};

// A queue of work on one device: cudaStream_t under a plain name. Whoever made it keeps it alive.
using GpuStream = void*;

// A stream of its own on a whole GPU, before others where the driver can choose: what waits for a message must not wait
// behind arithmetic, too.
class GpuOwnStream {
 public:
  explicit GpuOwnStream(int device);
  ~GpuOwnStream();
  GpuOwnStream(const GpuOwnStream&) = delete;
  GpuOwnStream& operator=(const GpuOwnStream&) = delete;

  GpuStream stream() const { return stream_; }

 private:
  GpuStream stream_ = nullptr;
};

// A moment of a stream.
class GpuEvent {
 public:
  explicit GpuEvent(int device);
  ~GpuEvent();
  GpuEvent(GpuEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)), moved_(other.moved_) {}
  GpuEvent& operator=(GpuEvent&& other) noexcept {
    return std::swap(event_, other.event_), std::swap(moved_, other.moved_), *this;
  }

  // Of an SM group's stream: goes before the group does.
  void record(GpuStream stream);
  bool moved() const { return moved_; }  // made anew in the context of a stream that refused it
  void wait_on(GpuStream stream) const;  // what `stream` gets from now on begins after this moment
  void wait() const;                     // the host waits
  bool passed() const;

 private:
  friend Time elapsed(const GpuEvent& from, const GpuEvent& to);
  friend bool comparable(const GpuEvent& from, const GpuEvent& to);
  void* event_ = nullptr;
  bool moved_ = false;
};
// Both recorded and passed, on one device. Resolution about 0.5 us, as the driver documents.
Time elapsed(const GpuEvent& from, const GpuEvent& to);
// Whether the driver tells the time between the two, which have passed: it may refuse events of two contexts.
bool comparable(const GpuEvent& from, const GpuEvent& to);

enum class GpuCopy : std::uint8_t { HostToDevice, DeviceToHost, DeviceToDevice };
// In the order of the stream. The host's side must be pinned for the host not to wait.
void gpu_copy(GpuStream stream, void* to, const void* from, Bytes bytes, GpuCopy direction);
// From memory of one GPU into that of another, by the direct link where there is one.
void gpu_copy_between(GpuStream stream, void* to, int to_device, const void* from, int from_device, Bytes bytes);
// Which GPU's memory an address is of. Throws GpuError for the host's.
int gpu_of(const void* address);
// The calling thread works with this GPU from now on: launches, events and memory are of the current one.
void gpu_use(int device);
// Copies of `device` reach the memory of `other` by their direct link. Throws GpuError where there is none.
void gpu_join(int device, int other);
// The contrary: their copies go as where there is none.
void gpu_part(int device, int other);
void gpu_zero(GpuStream stream, void* block, Bytes bytes);
void gpu_finish(GpuStream stream);  // the host waits until all of it is done; throws what a kernel of it failed with

// ---- virtual devices ------------------------------------------------------------------------------------------------

// One GPU as K workers. The SM groups are disjoint and equally large; what is left over belongs to nobody.
//
// The groups' streams are used while the GPU's ordinary (primary) context is current; a group's own context is so for
// the moment in which an event is made in it at most, as it is bound to one thread at a time. L2, memory bandwidth,
// copy engines and the clock stay shared.
class VirtualDevices {
 public:
  // groups 1: the whole GPU. Throws GpuError when the driver gives fewer groups than asked, and says what it gives.
  VirtualDevices(int device, int groups, int streams_each);
  ~VirtualDevices();
  VirtualDevices(const VirtualDevices&) = delete;
  VirtualDevices& operator=(const VirtualDevices&) = delete;

  int device() const { return device_; }
  int count() const { return static_cast<int>(groups_.size()); }
  int sms(int group) const { return groups_[static_cast<std::size_t>(group)].sms; }  // read back, not what was asked
  int left_over() const { return left_over_; }
  const std::string& how() const { return how_; }  // GpuSplit::how
  GpuStream stream(int group, int number = 0) const {
    return groups_[static_cast<std::size_t>(group)].streams[static_cast<std::size_t>(number)];
  }

 private:
  struct Group {
    int sms = 0;
    void* context = nullptr;  // null: the whole GPU
    std::vector<GpuStream> streams;
  };
  void cut(int groups, int streams_each);
  void close() noexcept;

  int device_ = 0, left_over_ = 0;
  std::string how_;
  std::vector<Group> groups_;
};

// Which events can be recorded in the streams of SM groups, waited for and compared, tried on two groups: "those of the
// whole GPU", "made in each group's own context", or "fail: cudaEventRecord: ..."; and whether events of two groups can
// be compared, which pairs that are timed need, runs do not: "...; not comparable between groups".
std::string group_events(int device);
// The latter, of two groups that are there. Waits for their streams.
bool comparable_groups(const VirtualDevices& devices);

}  // namespace pipewright::kernels
