#include "calibrate/gpu_under_test.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "calibrate/device_jobs.hpp"
#include "kernels/gpu_api.hpp"
#include "kernels/gpu_kernels.hpp"
#include "kernels/probes.hpp"
#include "runtime/backends/gpu.hpp"

namespace pipewright {
namespace {

constexpr int kStreams = 2;
constexpr double kReadingNs = 100e3;               // 200 times the resolution of events
constexpr std::int64_t kMostPasses = 128;          // in a stream at once: behind a gate its queue must hold them
constexpr std::int64_t kMostBlocks = kMostPasses;  // then no pass of a reading meets a block twice
constexpr Time kProbe{20'000};
struct Place {
  std::shared_ptr<VirtualDevices> devices;
  int group = 0;
  GpuStream stream() const { return devices->stream(group, 0); }
};

// As a run computes where nothing else is asked for (`run.kernels`): cuBLASLt multiplies where it is there.
std::unique_ptr<Backend> backend_of(const std::shared_ptr<VirtualDevices>& devices, int group, Precision precision) {
  static const bool library = [] {
    const GpuSystem system = gpu_system();
    return std::any_of(system.libraries.begin(), system.libraries.end(),
                       [](const GpuLibrary& each) { return each.name == "cuBLASLt" && !each.path.empty(); });
  }();
  return gpu_backend(devices, group, {}, {precision, library});
}

// What a backend has no name for: copies by the SMs, to and from pinned memory, and launches.
class OwnJob final : public DeviceJob {
 public:
  OwnJob(const DeviceMeasurement& m, Place place, std::int64_t blocks, JobMemory& memory)
      : work_(m.work),
        bytes_(4 * m.size.rows),
        blocks_(blocks),
        place_(std::move(place)),
        host_(place_.devices->device(), Bytes{host_bytes()}, GpuMemoryKind::PinnedHost) {
    const std::unique_ptr<Backend> backend = backend_of(place_.devices, place_.group, Precision::Fp32);
    const std::int64_t all = std::max<std::int64_t>(2 * bytes_ * blocks, 4);
    device_ = memory.at_least(*backend, Bytes{all});
    fill_random(*backend->mover(false), device_, all);
  }
  void launch() override {
    std::byte* const from = device_ + 2 * bytes_ * turn_;
    std::byte* const to = from + bytes_;
    turn_ = (turn_ + 1) % blocks_;
    const GpuStream stream = place_.stream();
    switch (work_) {
      case DeviceWork::Copy:
        return gpu_kernels::copy_values(gpu_kernels::queue_of(stream, place_.devices->sms(place_.group)), bytes_ / 4,
                                        reinterpret_cast<const float*>(from), reinterpret_cast<float*>(to));
      case DeviceWork::CopyToHost: return gpu_copy(stream, host_.data(), from, Bytes{bytes_}, GpuCopy::DeviceToHost);
      case DeviceWork::CopyToDevice: return gpu_copy(stream, to, host_.data(), Bytes{bytes_}, GpuCopy::HostToDevice);
      default: return launch_empty(stream);
    }
  }

 private:
  std::int64_t host_bytes() const {
    const bool used = work_ == DeviceWork::CopyToHost || work_ == DeviceWork::CopyToDevice;
    return used ? std::max<std::int64_t>(bytes_, 4) : 4;
  }

  DeviceWork work_;
  std::int64_t bytes_, blocks_, turn_ = 0;
  Place place_;
  std::byte* device_ = nullptr;
  GpuMemory host_;
};

std::unique_ptr<DeviceJob> job_of(const DeviceMeasurement& m, const Place& place, std::int64_t blocks,
                                  JobMemory& memory) {
  if (m.work == DeviceWork::Step || m.work == DeviceWork::Update || m.work == DeviceWork::CopyOnDevice)
    return device_job(m, backend_of(place.devices, place.group, m.precision), blocks, memory);
  return std::make_unique<OwnJob>(m, place, blocks, memory);
}

// ---- readings -------------------------------------------------------------------------------------------------------

// What all readings of one GPU use.
struct Instruments {
  explicit Instruments(int device)
      : gate(device),
        flush(device),
        start(device),
        end(device),
        probe(device, Bytes{sizeof(SmClockReading)}),
        probed(device, Bytes{sizeof(SmClockReading)}, GpuMemoryKind::PinnedHost) {}
  JobMemory& memory(int group) {
    while (static_cast<int>(memories.size()) <= group)
      memories.emplace_back();
    return memories[static_cast<std::size_t>(group)];
  }
  std::deque<JobMemory> memories;  // by group
  StreamGate gate;
  L2Flush flush;
  GpuEvent start, end;
  GpuMemory probe, probed;
};

class GpuWatch final : public Stopwatch {
 public:
  GpuWatch(const DeviceMeasurement& m, std::shared_ptr<VirtualDevices> devices, Instruments& instruments, bool warm,
           std::int64_t blocks, double clock_ghz)
      : devices_(std::move(devices)), instruments_(instruments), warm_(warm), clock_ghz_(clock_ghz) {
    for (int group = 0; group < m.busy; ++group)
      jobs_.push_back(job_of(m, {devices_, group}, blocks, instruments.memory(group)));
    for (int group = 0; group < m.busy; ++group)  // every kernel has run once before anything waits at a gate
      jobs_[static_cast<std::size_t>(group)]->launch(), gpu_finish(devices_->stream(group, 0));
    for (int group = 0; group < m.busy; ++group) {  // the gate's own kernel among them
      instruments_.gate.close(devices_->stream(group, 0));
      instruments_.gate.open();
      gpu_finish(devices_->stream(group, 0));
    }
    launch_clock_probe(stream(), kProbe, probe());
    instruments_.flush.launch(stream());
    gpu_finish(stream());
    const double once = timed(1);
    passes_ =
        once > 0 ? std::clamp(static_cast<std::int64_t>(kReadingNs / once), std::int64_t{1}, kMostPasses) : kMostPasses;
  }
  ~GpuWatch() override {
    try {
      for (std::size_t group = 0; group < jobs_.size(); ++group)
        gpu_finish(devices_->stream(static_cast<int>(group), 0));
    } catch (const GpuError&) {  // told where the next reading fails
    }
  }

  Reading time() override {
    const double ns = timed(passes_) / static_cast<double>(passes_);
    const auto& clock = *static_cast<const SmClockReading*>(instruments_.probed.data());
    const double ghz =
        clock.nanoseconds > 0 ? static_cast<double>(clock.cycles) / static_cast<double>(clock.nanoseconds) : 0;
    return {ns, clock_ghz_ > 0 && ghz > 0 ? ghz / clock_ghz_ : 1, ns * static_cast<double>(passes_)};
  }
  void pause(double seconds) override { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

 private:
  GpuStream stream() const { return devices_->stream(0, 0); }
  SmClockReading* probe() const { return static_cast<SmClockReading*>(instruments_.probe.data()); }

  // ns of so many passes of the first group while the others do half as many again.
  double timed(std::int64_t passes) {
    for (std::size_t group = 0; group < jobs_.size(); ++group)
      instruments_.gate.close(devices_->stream(static_cast<int>(group), 0));
    launch_clock_probe(stream(), kProbe, probe());
    gpu_copy(stream(), instruments_.probed.data(), probe(), Bytes{sizeof(SmClockReading)}, GpuCopy::DeviceToHost);
    if (!warm_) instruments_.flush.launch(stream());
    instruments_.start.record(stream());
    for (std::int64_t i = 0; i < passes; ++i)
      jobs_.front()->launch();
    instruments_.end.record(stream());
    for (std::size_t group = 1; group < jobs_.size(); ++group) {
      instruments_.start.wait_on(devices_->stream(static_cast<int>(group), 0));  // not before what is timed
      for (std::int64_t i = 0; i < passes + passes / 2 + 1; ++i)
        jobs_[group]->launch();
    }
    instruments_.gate.open();
    for (std::size_t group = 0; group < jobs_.size(); ++group)
      gpu_finish(devices_->stream(static_cast<int>(group), 0));
    return static_cast<double>(elapsed(instruments_.start, instruments_.end).value);
  }

  std::shared_ptr<VirtualDevices> devices_;
  Instruments& instruments_;
  bool warm_;
  double clock_ghz_;
  std::vector<std::unique_ptr<DeviceJob>> jobs_;
  std::int64_t passes_ = 1;
};

// ---- the device -----------------------------------------------------------------------------------------------------

class Gpu final : public DeviceUnderTest {
 public:
  Gpu(int device, std::string date, std::string revision)
      : device_(device), date_(std::move(date)), revision_(std::move(revision)), system_(gpu_system()) {
    if (!system_.missing.empty()) throw GpuError(system_.missing);
    const auto found = std::find_if(system_.gpus.begin(), system_.gpus.end(),
                                    [&](const GpuFacts& each) { return each.device == device; });
    if (found == system_.gpus.end()) throw GpuError(fmt::format("there is no GPU {}", device));
    if (!found->refusal.empty()) throw GpuError(found->name + ": " + found->refusal);
    gpu_ = *found;
  }

  MeasuredDevice facts() const override {
    MeasuredDevice m;
    m.gpu = gpu_.name, m.driver = system_.driver, m.toolkit = system_.toolkit, m.date = date_, m.revision = revision_;
    m.sms = gpu_.sms, m.clock_ghz = clock_ghz();
    return m;
  }
  Bytes memory() const override { return gpu_.memory; }
  int sms(int virtual_devices) override { return cut(virtual_devices).sms(0); }
  std::string refusal(const DeviceMeasurement& m) override {
    static_cast<void>(cut(m.virtual_devices));
    const std::unique_ptr<Backend> backend = backend_of(devices_, 0, m.precision);
    if (std::string why = refusal_of(m, *backend); !why.empty()) return why;
    const double needed = static_cast<double>(block_bytes(m, *backend).value) * m.busy;
    return needed > most_bytes() ? "larger than half of the GPU's free memory" : "";
  }
  std::unique_ptr<Stopwatch> stopwatch(const DeviceMeasurement& m, bool warm) override {
    static_cast<void>(cut(m.virtual_devices));
    if (!instruments_) instruments_.emplace(device_);
    const std::unique_ptr<Backend> backend = backend_of(devices_, 0, m.precision);
    const std::int64_t each = block_bytes(m, *backend).value;
    const std::int64_t beyond_l2 = 2 * gpu_.l2.value / each + 2;
    const auto room = static_cast<std::int64_t>(most_bytes() / static_cast<double>(each) / m.busy);
    const std::int64_t blocks = warm ? 1 : std::clamp<std::int64_t>(std::min(beyond_l2, room), 1, kMostBlocks);
    return std::make_unique<GpuWatch>(m, devices_, *instruments_, warm, blocks, clock_ghz());
  }
  double now() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

 private:
  double clock_ghz() const { return static_cast<double>(gpu_.sm_clock_khz) * 1e-6; }
  double most_bytes() const { return static_cast<double>(gpu_.free_memory.value) / 2; }
  VirtualDevices& cut(int groups) {
    if (!devices_ || devices_->count() != groups) {
      if (instruments_) instruments_->memories.clear();  // as many groups as shared it may be fewer now
      devices_.reset();
      devices_ = std::make_shared<VirtualDevices>(device_, groups, kStreams);
    }
    return *devices_;
  }

  int device_;
  std::string date_, revision_;
  GpuSystem system_;
  GpuFacts gpu_;
  std::shared_ptr<VirtualDevices> devices_;
  std::optional<Instruments> instruments_;
};

}  // namespace

std::unique_ptr<DeviceUnderTest> gpu_under_test(int device, const std::string& date, const std::string& revision) {
  if (gpu_count() == 0) throw GpuError(gpu_status());
  return std::make_unique<Gpu>(device, date, revision);
}

}  // namespace pipewright
