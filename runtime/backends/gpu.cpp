#include "runtime/backends/gpu.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/check.hpp"
#include "kernels/gpu_kernels.hpp"
#include "kernels/library_products.hpp"
#include "kernels/probes.hpp"
#include "runtime/arena.hpp"
#include "runtime/backends/grid_backend.hpp"
#include "runtime/clock.hpp"
#include "runtime/runnable.hpp"

namespace pipewright::runtime {
namespace {

class GpuBlock final : public DeviceMemory {
 public:
  explicit GpuBlock(GpuMemory memory)
      : DeviceMemory(static_cast<std::byte*>(memory.data())), memory_(std::move(memory)) {}

 private:
  GpuMemory memory_;
};

std::unique_ptr<DeviceMemory> block_of(int device, Bytes size, GpuMemoryKind kind) {
  try {
    return std::make_unique<GpuBlock>(GpuMemory(device, Bytes{std::max<std::int64_t>(size.value, 1)}, kind));
  } catch (const GpuOutOfMemory& error) {
    throw OutOfDevice(error.what());
  }
}

// One stream, and what is known of it. A worker's backend and its mover share theirs.
class Stream {
 public:
  Stream(std::shared_ptr<VirtualDevices> devices, int group, int number)
      : devices_(std::move(devices)),
        queue_(grid_kernels::queue_of(devices_->stream(group, number), devices_->sms(group))) {}

  int device() const { return device_; }
  // How products are computed that are asked of it: with factors in tf32; by the library, or null.
  void multiply_by(bool tf32, LibraryProducts* library) { queue_.tf32 = tf32, queue_.library = library; }
  // For whoever asks something of it next, in any thread.
  const grid_kernels::Queue& asked() {
    gpu_use(device_);
    behind_ = true;
    return queue_;
  }
  // The host waits, once for all that was asked for since it waited last.
  void finish() {
    if (!behind_) return;
    done_.record(queue_.stream);
    gpu_finish(queue_.stream);
    behind_ = false;
  }
  const GpuEvent& done() const { return done_; }

 private:
  std::shared_ptr<VirtualDevices> devices_;  // whose group's own the event may be
  int device_ = devices_->device();
  grid_kernels::Queue queue_;
  GpuEvent done_{device_};
  bool behind_ = true;  // `done` has no moment yet
};

// Moments of a stream's events on the host's clock: those since an origin whose moment is known. The two clocks drift
// apart by some millionths, so the origin is set anew before every step. An event's own moment lies between the host's
// two readings around it; of some tries, the one with the shortest time between.
class EventClock {
 public:
  explicit EventClock(int device) : device_(device), origin_(device) {}
  void set(GpuStream stream) {
    constexpr int kTries = 5;
    std::int64_t shortest = INT64_MAX;
    for (int i = 0; i < kTries; ++i) {
      GpuEvent event(device_);
      event.record(stream);  // may make it anew
      gpu_finish(stream);
      const std::int64_t before = steady_ns();
      event.record(stream);
      event.wait();
      const std::int64_t after = steady_ns();
      if (after - before >= shortest) continue;
      shortest = after - before, at_ = before + shortest / 2, origin_ = std::move(event);
    }
  }
  std::int64_t moment(const GpuEvent& event) const {
    PP_CHECK(at_ > 0);  // set before a step
    return at_ + elapsed(origin_, event).value;
  }

 private:
  int device_;
  GpuEvent origin_;
  std::int64_t at_ = 0;  // of the origin, ns of the host's clock
};

class GpuMover final : public Mover {
 public:
  explicit GpuMover(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  void finish() override { stream_->finish(); }
  void copy(void* to, const void* from, Bytes bytes) override {
    if (to == from || bytes.value == 0) return;
    const int there = gpu_of(to), here = gpu_of(from);
    if (there == here)
      gpu_copy(stream_->asked().stream, to, from, bytes, GpuCopy::DeviceToDevice);
    else
      gpu_copy_between(stream_->asked().stream, to, there, from, here, bytes);
  }
  void upload(void* to, const void* from_host, Bytes bytes) override {
    move(to, from_host, bytes, GpuCopy::HostToDevice);
  }
  void download(void* to_host, const void* from, Bytes bytes) override {
    move(to_host, from, bytes, GpuCopy::DeviceToHost);
  }
  void sum(float* to, std::span<const float* const> terms, std::int64_t elements) override {
    PP_CHECK(!terms.empty() && static_cast<int>(terms.size()) <= grid_kernels::kTermsPerSum);
    if (elements == 0) return;
    grid_kernels::sum_of_terms(stream_->asked(), elements, terms.data(), static_cast<int>(terms.size()), to);
  }
  std::unique_ptr<DeviceMemory> staging(Bytes size) const override {
    return block_of(stream_->device(), size, GpuMemoryKind::PinnedHost);
  }
  const std::shared_ptr<Stream>& stream() const { return stream_; }

 private:
  void move(void* to, const void* from, Bytes bytes, GpuCopy direction) {
    if (bytes.value == 0) return;
    gpu_copy(stream_->asked().stream, to, from, bytes, direction);
    stream_->finish();
  }

  std::shared_ptr<Stream> stream_;
};

// A mark is an event; those that have passed are used again. What is asked of the mover's own stream counts to what it
// was asked for: the next wait for it, and the moment at which it had done all, are behind that.
class GpuNcclQueue final : public NcclQueue {
 public:
  GpuNcclQueue(std::shared_ptr<Stream> stream, NcclPlace place) : stream_(std::move(stream)) {
    if (place == NcclPlace::Beside) beside_ = std::make_unique<GpuOwnStream>(stream_->device());
  }

  void* stream() override {
    if (beside_ == nullptr) return stream_->asked().stream;
    gpu_use(stream_->device());
    return beside_->stream();
  }
  std::int64_t mark() override {
    if (free_.empty()) free_.emplace_back(stream_->device());
    marks_.push_back(std::move(free_.back()));
    free_.pop_back();
    marks_.back().record(stream());
    return first_ + std::ssize(marks_) - 1;
  }
  bool passed(std::int64_t mark) override {
    for (; first_ <= mark; ++first_) {
      if (!marks_.front().passed()) return false;
      free_.push_back(std::move(marks_.front()));
      marks_.pop_front();
    }
    return true;
  }

 private:
  std::shared_ptr<Stream> stream_;  // the mover's
  std::unique_ptr<GpuOwnStream> beside_;
  std::deque<GpuEvent> marks_;  // that have not been seen to have passed
  std::vector<GpuEvent> free_;
  std::int64_t first_ = 0;  // number of the first of `marks_`
};

GpuPrecision factors_of(Precision precision) {
  switch (precision) {
    case Precision::Fp32: return GpuPrecision::Fp32;
    case Precision::Tf32: return GpuPrecision::Tf32;
    case Precision::Fp16: return GpuPrecision::Fp16;
    case Precision::Bf16: return GpuPrecision::Bf16;
    case Precision::Fp8:
    case Precision::Fp4: break;  // refused by check_precision
  }
  PP_CHECK(false);
  return GpuPrecision::Fp32;
}

template <class S>
class GpuBackend final : public backends::GridBackend<grid_kernels::Queue, S> {
 public:
  GpuBackend(std::shared_ptr<VirtualDevices> devices, int group, DeviceFacts facts, const GpuArithmetic& how)
      : precision_(how.precision), devices_(std::move(devices)), group_(group), facts_(std::move(facts)) {
    facts_.sms = devices_->sms(group);
    gpu_use(devices_->device());
    check_kernels_run();
    if (how.library) library_ = std::make_unique<LibraryProducts>(factors_of(precision_), devices_->sms(group));
    stream_->multiply_by(precision_ == Precision::Tf32, library_.get());
  }

  std::string name() const override {
    return fmt::format("cuda ({} SMs{}{}, {}, {})", devices_->sms(group_), devices_->how().empty() ? "" : ", ",
                       devices_->how(), name_of(precision_), library_ == nullptr ? "own products" : "cuBLASLt");
  }
  Precision precision() const override { return precision_; }
  std::string_view kind() const override { return "cuda"; }
  std::optional<ProductAlgorithm> product_algorithm() const override {
    const auto told = library_ == nullptr ? std::nullopt : library_->last_algorithm();
    if (!told) return std::nullopt;
    return ProductAlgorithm{told->waves, told->tile_rows, told->tile_columns, told->split_k};
  }
  DeviceFacts device() const override { return facts_; }
  Bytes alignment() const override { return kGpuAlignment; }
  void copy(void* to, const void* from, Bytes bytes) override {
    if (to != from && bytes.value > 0) gpu_copy(stream_->asked().stream, to, from, bytes, GpuCopy::DeviceToDevice);
  }
  void zero(void* block, Bytes bytes) override {
    if (bytes.value > 0) gpu_zero(stream_->asked().stream, block, bytes);
  }

  void finish() override { stream_->finish(); }
  void set_clock() override {
    stream_->finish();
    clock_.set(stream_->asked().stream);
  }
  void mark(std::size_t number) override {
    while (marks_.size() <= number)
      marks_.emplace_back(devices_->device());
    marks_[number].record(stream_->asked().stream);
  }
  std::int64_t moment(std::size_t number) const override { return clock_.moment(marks_.at(number)); }
  std::int64_t finished() const override { return clock_.moment(stream_->done()); }
  double mark_cost() const override { return 0; }  // the host does not wait for an event; what it costs is not measured
  // Normal numbers: logarithms and cosines, the whole group busy, a block of memory that its L2 holds.
  Time probe() override {
    constexpr int kLaunches = 8;
    constexpr Time kLaunching{1'000'000};  // eight workers at once wait for one another's launches
    make_probe_block();
    stream_->finish();
    // The stream stands still until all of it is asked for, so that launching does not show.
    launch_delay(stream_->asked().stream, kLaunching);
    probe_begin_.record(stream_->asked().stream);
    for (int i = 0; i < kLaunches; ++i)
      grid_kernels::normal(stream_->asked(), kProbed, 1, 1.0F, reinterpret_cast<float*>(probe_block_->base()));
    stream_->finish();
    return elapsed(probe_begin_, stream_->done());
  }

  std::unique_ptr<DeviceMemory> reserve(Bytes size) override {
    auto block = block_of(devices_->device(), size, GpuMemoryKind::Device);
    make_probe_block();  // so that a full device is told before anything runs
    return block;
  }
  std::unique_ptr<Mover> mover(MoverFor thread) override {
    return std::make_unique<GpuMover>(thread == MoverFor::Worker ? stream_ : stream(static_cast<int>(thread)));
  }
  bool in_host_memory() const override { return false; }

 protected:
  const grid_kernels::Queue& queue() const override { return stream_->asked(); }

 private:
  static constexpr std::int64_t kProbed = 1 << 18;
  void make_probe_block() {
    if (probe_block_ == nullptr) probe_block_ = block_of(devices_->device(), Bytes{kProbed * 4}, GpuMemoryKind::Device);
  }
  std::shared_ptr<Stream> stream(int number) const { return std::make_shared<Stream>(devices_, group_, number); }

  Precision precision_;
  std::shared_ptr<VirtualDevices> devices_;
  std::unique_ptr<LibraryProducts> library_;
  int group_;
  DeviceFacts facts_;
  std::shared_ptr<Stream> stream_ = stream(0);
  EventClock clock_{devices_->device()};
  std::vector<GpuEvent> marks_;
  std::unique_ptr<DeviceMemory> probe_block_;
  GpuEvent probe_begin_{devices_->device()};
};

}  // namespace

std::unique_ptr<Backend> gpu_backend(const std::shared_ptr<VirtualDevices>& devices, int group, DeviceFacts facts,
                                     const GpuArithmetic& how) {
  return backends::stored_as<GpuBackend>(how.precision, devices, group, std::move(facts), how);
}

std::unique_ptr<NcclQueue> gpu_nccl_queue(Mover& mover, NcclPlace place) {
  auto* const gpu = dynamic_cast<GpuMover*>(&mover);
  PP_CHECK(gpu != nullptr);
  return std::make_unique<GpuNcclQueue>(gpu->stream(), place);
}

}  // namespace pipewright::runtime
