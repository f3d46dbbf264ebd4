#include "calibrate/gpu_collectives.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "calibrate/device_jobs.hpp"
#include "kernels/gpu_kernels.hpp"
#include "kernels/probes.hpp"
#include "runtime/backends/gpu.hpp"

namespace pipewright::calibrate {
namespace {

constexpr std::int64_t kMostBehindGate = 400;   // of launches and events in one stream
constexpr Bytes kLargestCollective{256 << 20};  // of NCCL's collectives
constexpr double kNcclTimeout = 60;

// Share of the highest clock; 1 where it is not known.
double clock_share(const SmClockReading& reading, double clock_ghz) {
  const double ghz =
      reading.nanoseconds > 0 ? static_cast<double>(reading.cycles) / static_cast<double>(reading.nanoseconds) : 0;
  return clock_ghz > 0 && ghz > 0 ? ghz / clock_ghz : 1;
}

std::vector<double> downloaded(Mover& mover, const std::byte* from, std::int64_t bytes) {
  std::vector<std::byte> block(at(bytes));
  mover.download(block.data(), from, Bytes{bytes});
  std::vector<double> values(block.size() / 4);
  widened(block.data(), std::ssize(values), Precision::Fp32, values.data());
  return values;
}

// The buffers of all groups of a GPU.
class Ring {
 public:
  Ring(const DeviceMeasurement& m, std::shared_ptr<VirtualDevices> devices)
      : devices_(std::move(devices)),
        bytes_(static_cast<std::int64_t>(m.size.values)),
        memory_(backend_->reserve(Bytes{all()})),
        first_(backend_->reserve(Bytes{all()})) {
    fill_random(*mover_, first_->base(), all());
    backend_->finish();
    for (int i = 0; i < devices_->count(); ++i) {
      queues_.push_back(grid_kernels::queue_of(devices_->stream(i), devices_->sms(i)));
      buffers_.push_back(reinterpret_cast<float*>(memory_->base() + i * bytes_));
    }
    refill();
  }
  int count() const { return devices_->count(); }
  GpuStream stream(int group) const { return devices_->stream(group); }
  int device() const { return devices_->device(); }
  // Sums of sums would not stay numbers for long.
  void refill() {
    mover_->copy(memory_->base(), first_->base(), Bytes{all()});
    mover_->finish();
  }
  void launch() { grid_kernels::ring_all_reduce(devices_->device(), queues_, buffers_, bytes_ / 4); }
  void finish() {
    for (int i = 0; i < count(); ++i)
      gpu_finish(stream(i));
  }
  NumericCheck check() {
    std::vector<double> sum(at(bytes_ / 4));
    for (int i = 0; i < count(); ++i) {
      const std::vector<double> one = downloaded(*mover_, first_->base() + i * bytes_, bytes_);
      for (std::size_t j = 0; j < sum.size(); ++j)
        sum[j] += one[j];
    }
    refill();
    launch();
    finish();
    NumericCheck check{0, 2e-5};
    for (int i = 0; i < count(); ++i)
      check.error = std::max(check.error, relative_off(downloaded(*mover_, memory_->base() + i * bytes_, bytes_), sum));
    return check;
  }

 private:
  std::int64_t all() const { return bytes_ * devices_->count(); }

  std::shared_ptr<VirtualDevices> devices_;
  std::int64_t bytes_;
  std::unique_ptr<Backend> backend_ = gpu_backend(devices_, 0, {}, {});
  std::unique_ptr<Mover> mover_ = backend_->mover(MoverFor::Worker);
  std::unique_ptr<DeviceMemory> memory_, first_;
  std::vector<grid_kernels::Queue> queues_;
  std::vector<float*> buffers_;
};

void sleep(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

class RingWatch final : public Stopwatch {
 public:
  RingWatch(const DeviceMeasurement& m, const std::shared_ptr<VirtualDevices>& devices, double clock_ghz)
      : ring_(m, devices),
        clock_ghz_(clock_ghz),
        gate_(devices->device()),
        flush_(devices->device()),
        start_(devices->device()),
        end_(devices->device()),
        probe_(devices->device(), Bytes{sizeof(SmClockReading)}),
        probed_(devices->device(), Bytes{sizeof(SmClockReading)}, GpuMemoryKind::PinnedHost) {
    for (int i = 0; i < ring_.count(); ++i)
      ends_.emplace_back(devices->device());
    ring_.launch(), ring_.finish();  // every kernel has run once before anything waits at a gate
    for (int i = 0; i < ring_.count(); ++i) {
      gate_.close(ring_.stream(i));
      gate_.open();
      gpu_finish(ring_.stream(i));
    }
    launch_clock_probe(ring_.stream(0), kProbe, probe());
    flush_.launch(ring_.stream(0));
    ring_.finish();
    const double once = timed();
    const std::int64_t most = std::max<std::int64_t>(1, kMostBehindGate / (6 * (ring_.count() - 1) + 2));
    passes_ = once > 0 ? std::clamp(static_cast<std::int64_t>(kGpuReadingNs / once), std::int64_t{1}, most) : most;
  }
  ~RingWatch() override {
    try {
      ring_.finish();
    } catch (const GpuError&) {  // told where the next reading fails
    }
  }
  Reading time() override {
    const double ns = timed();
    return {ns / static_cast<double>(passes_),
            clock_share(*static_cast<const SmClockReading*>(probed_.data()), clock_ghz_), ns};
  }
  void pause(double seconds) override { sleep(seconds); }

 private:
  SmClockReading* probe() const { return static_cast<SmClockReading*>(probe_.data()); }
  double timed() {
    ring_.refill();
    const OpenAtLast open{gate_};
    const GpuStream first = ring_.stream(0);
    for (int i = 0; i < ring_.count(); ++i)
      gate_.close(ring_.stream(i));
    launch_clock_probe(first, kProbe, probe());
    gpu_copy(first, probed_.data(), probe(), Bytes{sizeof(SmClockReading)}, GpuCopy::DeviceToHost);
    flush_.launch(first);
    start_.record(first);
    for (int i = 1; i < ring_.count(); ++i)
      start_.wait_on(ring_.stream(i));
    for (std::int64_t pass = 0; pass < passes_; ++pass)
      ring_.launch();
    for (int i = 1; i < ring_.count(); ++i) {
      ends_[at(i)].record(ring_.stream(i));
      ends_[at(i)].wait_on(first);
    }
    end_.record(first);
    gate_.open();
    ring_.finish();
    return static_cast<double>(elapsed(start_, end_).value);
  }

  Ring ring_;
  double clock_ghz_;
  StreamGate gate_;
  L2Flush flush_;
  GpuEvent start_, end_;
  GpuMemory probe_, probed_;
  std::vector<GpuEvent> ends_;
  std::int64_t passes_ = 1;
};

class Peers {
 public:
  explicit Peers(const DeviceMeasurement& m)
      : from_(m.from),
        to_(m.to),
        bytes_(static_cast<std::int64_t>(m.size.values)),
        sender_(gpu_backend(std::make_shared<VirtualDevices>(m.from, 1, 2), 0, {}, {})),
        receiver_(gpu_backend(std::make_shared<VirtualDevices>(m.to, 1, 2), 0, {}, {})),
        source_(sender_->reserve(Bytes{bytes_})),
        target_(receiver_->reserve(Bytes{bytes_})),
        stream_(m.from) {
    fill_random(*sender_->mover(MoverFor::Worker), source_->base(), bytes_);
    sender_->finish();
    receiver_->zero(target_->base(), Bytes{bytes_});
    receiver_->finish();
    gpu_part(from_, to_), gpu_part(to_, from_);
    if (m.work == DeviceWork::PeerCopy) gpu_join(from_, to_);
    gpu_use(from_);
  }
  ~Peers() {
    try {
      gpu_finish(stream());
      gpu_part(from_, to_);
    } catch (const GpuError&) {  // told where the next reading fails
    }
  }
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  int from() const { return from_; }
  GpuStream stream() const { return stream_.stream(); }
  void launch() { gpu_copy_between(stream(), target_->base(), to_, source_->base(), from_, Bytes{bytes_}); }
  NumericCheck check() {
    launch();
    gpu_finish(stream());
    const auto right = downloaded(*sender_->mover(MoverFor::Worker), source_->base(), bytes_),
               got = downloaded(*receiver_->mover(MoverFor::Worker), target_->base(), bytes_);
    return {got == right ? 0.0 : 1.0, 0};
  }

 private:
  int from_, to_;
  std::int64_t bytes_;
  std::unique_ptr<Backend> sender_, receiver_;
  std::unique_ptr<DeviceMemory> source_, target_;
  GpuOwnStream stream_;
};

class PeerWatch final : public Stopwatch {
 public:
  explicit PeerWatch(const DeviceMeasurement& m)
      : peers_(m), gated_(m.work == DeviceWork::PeerCopy), gate_(m.from), start_(m.from), end_(m.from) {
    peers_.launch();
    gate_.close(peers_.stream());
    gate_.open();
    gpu_finish(peers_.stream());
    const double once = timed();
    passes_ = once > 0 ? std::clamp(static_cast<std::int64_t>(kGpuReadingNs / once), std::int64_t{1}, kMostPasses)
                       : kMostPasses;
  }
  Reading time() override {
    const double ns = timed();
    return {ns / static_cast<double>(passes_), 1, ns};
  }
  void pause(double seconds) override { sleep(seconds); }

 private:
  static constexpr std::int64_t kMostPasses = 128;
  double timed() {
    const OpenAtLast open{gate_};
    if (gated_) gate_.close(peers_.stream());
    start_.record(peers_.stream());
    for (std::int64_t pass = 0; pass < passes_; ++pass)
      peers_.launch();
    end_.record(peers_.stream());
    if (gated_) gate_.open();
    gpu_finish(peers_.stream());
    return static_cast<double>(elapsed(start_, end_).value);
  }

  Peers peers_;
  bool gated_;
  StreamGate gate_;
  GpuEvent start_, end_;
  std::int64_t passes_ = 1;
};

}  // namespace

std::unique_ptr<Stopwatch> ring_watch(const DeviceMeasurement& m, const std::shared_ptr<VirtualDevices>& devices,
                                      double clock_ghz) {
  return std::make_unique<RingWatch>(m, devices, clock_ghz);
}
NumericCheck ring_check(const DeviceMeasurement& m, const std::shared_ptr<VirtualDevices>& devices) {
  return Ring(m, devices).check();
}

std::unique_ptr<Stopwatch> peer_watch(const DeviceMeasurement& m) {
  return std::make_unique<PeerWatch>(m);
}
NumericCheck peer_check(const DeviceMeasurement& m) {
  return Peers(m).check();
}

NcclAmong gpu_nccl() {
  const auto backend = [](WorkerId worker) {
    return gpu_backend(std::make_shared<VirtualDevices>(static_cast<int>(worker), 1, 2), 0, {}, {});
  };
  return {backend, gpu_nccl_queue, kLargestCollective, kNcclTimeout};
}

}  // namespace pipewright::calibrate
