#include "calibrate/gpu_under_test.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "calibrate/device_jobs.hpp"
#include "calibrate/gpu_collectives.hpp"
#include "core/folds.hpp"
#include "kernels/gpu_api.hpp"
#include "kernels/gpu_graph.hpp"
#include "kernels/gpu_kernels.hpp"
#include "kernels/probes.hpp"
#include "runtime/backends/gpu.hpp"

namespace pipewright::calibrate {
namespace {

constexpr int kStreams = 2;
constexpr double kPairNs = 300e3;                        // of a pair: what begins and ends beside it shows less
constexpr std::int64_t kMostGpuPasses = 128;             // in a stream at once: behind a gate its queue must hold them
constexpr std::int64_t kMostGpuBlocks = kMostGpuPasses;  // with so many no pass of a reading meets a block twice
struct Place {
  std::shared_ptr<VirtualDevices> devices;
  int group = 0, number = 0;  // of the group's streams; backends compute on the first
  GpuStream stream() const { return devices->stream(group, number); }
};

// As a run computes where nothing else is asked for (`run.kernels`): cuBLASLt multiplies where it is there.
std::unique_ptr<Backend> backend_of(const std::shared_ptr<VirtualDevices>& devices, int group, Precision precision) {
  static const bool library = [] {
    const GpuSystem system = gpu_system();
    return std::ranges::any_of(system.libraries,
                               [](const GpuLibrary& each) { return each.name == "cuBLASLt" && !each.path.empty(); });
  }();
  return gpu_backend(devices, group, {}, {precision, library});
}

// What a backend has no name for: copies by the SMs, to and from the host's memory, and those of the driver beside what
// a backend computes.
class OwnJob final : public DeviceJob {
 public:
  OwnJob(const DeviceMeasurement& m, Place place, std::int64_t blocks, JobMemory& memory)
      : work_(m.work), bytes_(4 * m.size.rows), blocks_(blocks), place_(std::move(place)) {
    const std::unique_ptr<Backend> backend = backend_of(place_.devices, place_.group, Precision::Fp32);
    const std::int64_t all = std::max<std::int64_t>(2 * bytes_ * blocks, 4);
    device_ = memory.at_least(*backend, Bytes{all});
    const std::unique_ptr<Mover> mover = backend->mover(MoverFor::Worker);
    fill_random(*mover, device_, all);
    mover->finish();  // what is timed may be on another stream
  }
  void launch() override {
    std::byte* const from = device_ + 2 * bytes_ * turn_;
    std::byte* const to = from + bytes_;
    turn_ = (turn_ + 1) % blocks_;
    const GpuStream stream = place_.stream();
    switch (work_) {
      case DeviceWork::Copy:
        return grid_kernels::copy_values(grid_kernels::queue_of(stream, place_.devices->sms(place_.group)), bytes_ / 4,
                                         reinterpret_cast<const float*>(from), reinterpret_cast<float*>(to));
      case DeviceWork::CopyOnDevice: return gpu_copy(stream, to, from, Bytes{bytes_}, GpuCopy::DeviceToDevice);
      case DeviceWork::CopyToHost: return gpu_copy(stream, pinned_.data(), from, Bytes{bytes_}, GpuCopy::DeviceToHost);
      case DeviceWork::CopyToDevice: return gpu_copy(stream, to, pinned_.data(), Bytes{bytes_}, GpuCopy::HostToDevice);
      case DeviceWork::CopyPageableToHost:
        return gpu_copy(stream, pageable_.data(), from, Bytes{bytes_}, GpuCopy::DeviceToHost);
      default: return gpu_copy(stream, to, pageable_.data(), Bytes{bytes_}, GpuCopy::HostToDevice);
    }
  }
  std::optional<NumericCheck> check() override {
    const std::unique_ptr<Backend> backend = backend_of(place_.devices, place_.group, Precision::Fp32);
    std::byte* const to = device_ + bytes_;
    const auto copied = [&] { turn_ = 0, launch(); };
    const bool host = work_ == DeviceWork::CopyToHost || work_ == DeviceWork::CopyPageableToHost;
    if (!host && work_ != DeviceWork::CopyToDevice && work_ != DeviceWork::CopyPageableToDevice)
      return checked_copy(*backend, to, device_, bytes_, copied);
    // There and back: what comes from the host is uploaded first, so that it is the same as on the device.
    std::byte* const there =
        pinned_.bytes().value >= bytes_ ? static_cast<std::byte*>(pinned_.data()) : pageable_.data();
    const auto mover = backend->mover(MoverFor::Worker);
    if (!host) {
      mover->download(there, device_, Bytes{bytes_});
      return checked_copy(*backend, to, device_, bytes_, copied);
    }
    std::fill_n(there, bytes_, std::byte{});
    return checked_copy(*backend, to, device_, bytes_, [&] {
      copied(), gpu_finish(place_.stream());
      mover->upload(to, there, Bytes{bytes_});
    });
  }

 private:
  std::int64_t pinned_bytes() const {
    const bool used = work_ == DeviceWork::CopyToHost || work_ == DeviceWork::CopyToDevice;
    return used ? std::max<std::int64_t>(bytes_, 4) : 4;
  }
  std::int64_t pageable_bytes() const {
    return work_ == DeviceWork::CopyPageableToHost || work_ == DeviceWork::CopyPageableToDevice ? bytes_ : 0;
  }

  DeviceWork work_;
  std::int64_t bytes_, blocks_, turn_ = 0;
  Place place_;
  std::byte* device_ = nullptr;
  GpuMemory pinned_ = GpuMemory(place_.devices->device(), Bytes{pinned_bytes()}, GpuMemoryKind::PinnedHost);
  std::vector<std::byte> pageable_ = std::vector<std::byte>(at(pageable_bytes()), std::byte{0x5a});
};

bool launches(DeviceWork work) {
  return work == DeviceWork::Launch ||
         (by_the_host(work) && work != DeviceWork::CopyPageableToHost && work != DeviceWork::CopyPageableToDevice);
}

// Empty kernels, in each of the ways in which a run's ops can come to the device.
class LaunchJob final : public DeviceJob {
 public:
  LaunchJob(const DeviceMeasurement& m, const Place& place)
      : work_(m.work),
        count_(std::max<std::int64_t>(m.size.rows, 1)),
        here_(place.stream()),
        there_(place.devices->stream(place.group, 1 - place.number)),
        left_(place.devices->device()),
        arrived_(place.devices->device()) {
    launch_empty(here_), launch_empty(there_);
    gpu_finish(here_), gpu_finish(there_);
    if (work_ == DeviceWork::LaunchByGraph) graph_ = GpuGraph(here_, [&] { launch_all(); });
  }
  void launch() override {
    switch (work_) {
      case DeviceWork::LaunchByGraph: return graph_.launch(here_);
      case DeviceWork::LaunchAndRecord:
        for (std::int64_t i = 0; i < count_; ++i)
          launch_empty(here_), arrived_.record(here_);
        return;
      case DeviceWork::LaunchAcross:
        for (std::int64_t i = 0; i < count_; ++i) {
          launch_empty(here_), left_.record(here_), left_.wait_on(there_);
          launch_empty(there_), arrived_.record(there_), arrived_.wait_on(here_);
        }
        return;
      default: return launch_all();
    }
  }

 private:
  void launch_all() {
    for (std::int64_t i = 0; i < count_; ++i)
      launch_empty(here_);
  }

  DeviceWork work_;
  std::int64_t count_;
  GpuStream here_, there_;
  GpuEvent left_, arrived_;
  GpuGraph graph_;
};

std::unique_ptr<DeviceJob> job_of(const DeviceMeasurement& m, const Place& place, std::int64_t blocks,
                                  JobMemory& memory) {
  const bool first = place.number == 0;
  if (computed(m.work) || (m.work == DeviceWork::CopyOnDevice && first))
    return device_job(m, backend_of(place.devices, place.group, m.precision), blocks, memory);
  if (launches(m.work)) return std::make_unique<LaunchJob>(m, place);
  return std::make_unique<OwnJob>(m, place, blocks, memory);
}

// Where a measurement and what is beside it go: group after group, the one that is timed first. Of a pair on the whole
// GPU what a backend computes has the first stream, a copy the second.
std::vector<Place> places_of(const DeviceMeasurement& m, const std::shared_ptr<VirtualDevices>& devices) {
  if (m.beside != nullptr && devices->count() == 1) {
    const int timed = by_driver(m.beside->work) ? 0 : 1;
    return {{devices, 0, timed}, {devices, 0, 1 - timed}};
  }
  return mapped<Place>(counted_to(m.busy), [&](int group) { return Place{devices, group, 0}; });
}

// ---- readings -------------------------------------------------------------------------------------------------------

// What all readings of one GPU use.
struct Instruments {
  explicit Instruments(int device)
      : gate(device),
        flush(device),
        probe(device, Bytes{sizeof(SmClockReading)}),
        probed(device, Bytes{sizeof(SmClockReading)}, GpuMemoryKind::PinnedHost) {}
  JobMemories memories;
  StreamGate gate;
  L2Flush flush;
  GpuMemory probe, probed;
};

class GpuWatch final : public Stopwatch {
 public:
  // Blocks: of what is timed, with the most passes of a reading, and of what is beside it.
  GpuWatch(const DeviceMeasurement& m, const std::shared_ptr<VirtualDevices>& devices, Instruments& instruments,
           bool warm, const ColdBlocks& blocks, std::int64_t beside_blocks, double clock_ghz)
      : instruments_(instruments),
        ready_(devices->device()),
        start_(devices->device()),
        warm_(warm),
        gated_(!by_the_host(m.work)),
        pair_(m.beside != nullptr),
        clock_ghz_(clock_ghz) {
    for (const Place& place : places_of(m, devices)) {
      const bool other = pair_ && !lanes_.empty();
      auto job = job_of(other ? *m.beside : m, place, other ? beside_blocks : blocks.blocks,
                        instruments.memories[lanes_.size()]);
      lanes_.push_back({place.stream(), std::move(job), GpuEvent(devices->device()), GpuEvent(devices->device())});
    }
    for (const Lane& lane : lanes_)  // every kernel has run once before anything waits at a gate
      lane.job->launch(), gpu_finish(lane.stream);
    for (const Lane& lane : lanes_) {  // the gate's own kernel among them
      instruments_.gate.close(lane.stream);
      instruments_.gate.open();
      gpu_finish(lane.stream);
    }
    launch_clock_probe(stream(), kProbe, probe());
    instruments_.flush.launch(stream());
    gpu_finish(stream());
    const double once = timed();
    const double wanted = pair_ ? kPairNs : kGpuReadingNs;
    passes_ =
        once > 0 ? std::clamp(static_cast<std::int64_t>(wanted / once), std::int64_t{1}, blocks.passes) : blocks.passes;
  }
  ~GpuWatch() override {
    try {
      finish();
    } catch (const GpuError&) {  // told where the next reading fails
    }
  }

  Reading time() override {
    const double all = timed(), ns = all / static_cast<double>(passes_);
    const auto& clock = *static_cast<const SmClockReading*>(instruments_.probed.data());
    const double ghz =
        clock.nanoseconds > 0 ? static_cast<double>(clock.cycles) / static_cast<double>(clock.nanoseconds) : 0;
    return {ns, clock_ghz_ > 0 && ghz > 0 ? ghz / clock_ghz_ : 1, all};
  }
  void pause(double seconds) override { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
  std::optional<ProductAlgorithm> algorithm() const override { return lanes_.front().job->algorithm(); }

 private:
  struct Lane {
    GpuStream stream;
    std::unique_ptr<DeviceJob> job;
    GpuEvent begun, end;
  };
  GpuStream stream() const { return lanes_.front().stream; }
  SmClockReading* probe() const { return static_cast<SmClockReading*>(instruments_.probe.data()); }
  void finish() {
    for (const Lane& lane : lanes_)
      gpu_finish(lane.stream);
  }
  static void launch(const Lane& lane, std::int64_t passes) {
    for (std::int64_t i = 0; i < passes; ++i)
      lane.job->launch();
  }

  // ns of `passes_` passes of the first lane.
  double timed() {
    if (!pair_) return timed_once();
    for (;;) {
      const double ns = timed_once();
      if (covered()) return ns;
      if (beside_passes_ < kMostGpuPasses)
        beside_passes_ = std::min(2 * beside_passes_, kMostGpuPasses);
      else if (passes_ > 1)
        passes_ = (passes_ + 1) / 2;
      else
        throw NotTimed("what is beside it ends first");
    }
  }

  double timed_once() {
    const OpenAtLast open{instruments_.gate};
    if (gated_)
      for (const Lane& lane : lanes_)
        instruments_.gate.close(lane.stream);
    launch_clock_probe(stream(), kProbe, probe());
    gpu_copy(stream(), instruments_.probed.data(), probe(), Bytes{sizeof(SmClockReading)}, GpuCopy::DeviceToHost);
    if (!warm_) instruments_.flush.launch(stream());
    if (!gated_) finish();
    if (pair_)
      ask_for_pair();
    else
      ask_for_the_same();
    if (gated_) instruments_.gate.open();
    finish();
    return static_cast<double>(elapsed(start_, lanes_.front().end).value);
  }

  // The others do half as many passes again, and begin with what is timed.
  void ask_for_the_same() {
    Lane& first = lanes_.front();
    start_.record(first.stream);
    launch(first, passes_);
    first.end.record(first.stream);
    for (std::size_t i = 1; i < lanes_.size(); ++i) {
      start_.wait_on(lanes_[i].stream);  // not before what is timed
      launch(lanes_[i], passes_ + passes_ / 2 + 1);
    }
  }

  // What is timed begins when all others have done a pass, and ends while they still do others.
  void ask_for_pair() {
    Lane& first = lanes_.front();
    ready_.record(first.stream);
    for (std::size_t i = 1; i < lanes_.size(); ++i) {
      ready_.wait_on(lanes_[i].stream);
      lanes_[i].job->launch();
      lanes_[i].begun.record(lanes_[i].stream);
      lanes_[i].begun.wait_on(first.stream);
    }
    start_.record(first.stream);
    launch(first, passes_);
    first.end.record(first.stream);
    for (std::size_t i = 1; i < lanes_.size(); ++i) {
      launch(lanes_[i], beside_passes_);
      lanes_[i].end.record(lanes_[i].stream);
    }
  }
  bool covered() const {
    for (std::size_t i = 1; i < lanes_.size(); ++i)
      if (elapsed(lanes_[i].begun, lanes_[i].end) < elapsed(lanes_[i].begun, lanes_.front().end)) return false;
    return true;
  }

  Instruments& instruments_;
  GpuEvent ready_, start_;
  bool warm_, gated_, pair_;
  double clock_ghz_;
  std::vector<Lane> lanes_;  // the first is timed
  std::int64_t passes_ = 1, beside_passes_ = 2;
};

// ---- the device -----------------------------------------------------------------------------------------------------

class Gpu final : public DeviceUnderTest {
 public:
  Gpu(int device, std::string date, std::string revision)
      : device_(device), date_(std::move(date)), revision_(std::move(revision)), system_(gpu_system()) {
    if (!system_.missing.empty()) throw GpuError(system_.missing);
    const auto found = std::ranges::find_if(system_.gpus, [&](const GpuFacts& each) { return each.device == device; });
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
  int gpus() const override { return static_cast<int>(system_.gpus.size()); }
  std::string refusal(const DeviceMeasurement& m) override {
    if (collective(m.work)) return refusal_of_collective(m);
    static_cast<void>(cut(m.virtual_devices));
    if (m.beside != nullptr && !pairs_can_be_timed())
      return "events are made in each group's own context; not comparable between groups";
    for (const DeviceMeasurement* const one : {&m, m.beside.get()})
      if (one != nullptr)
        if (std::string why = refusal_of(*one, *backend_of(devices_, 0, one->precision)); !why.empty()) return why;
    return too_large(m, each_bytes(m), m.beside == nullptr ? 0 : each_bytes(*m.beside) * others(m), most_bytes());
  }
  // What a kernel did wrong stays with the process: every later call fails with it.
  std::string lost() override {
    try {
      gpu_use(device_);
      gpu_finish(nullptr);
      return "";
    } catch (const GpuError& error) {
      return error.what();
    }
  }
  std::unique_ptr<Stopwatch> stopwatch(const DeviceMeasurement& m, bool warm) override {
    if (collective(m.work)) return watch_of_collective(m);
    static_cast<void>(cut(m.virtual_devices));
    if (!instruments_) instruments_.emplace(device_);
    const int jobs = m.beside == nullptr ? m.busy : 1 + others(m);
    const std::int64_t beside = m.beside == nullptr ? 0 : blocks_of(*m.beside, jobs, warm).blocks;
    const ColdBlocks blocks = blocks_of(m, jobs, warm);
    std::vector<std::int64_t> needed(at(jobs), blocks.blocks * each_bytes(m));
    if (m.beside != nullptr) std::fill(needed.begin() + 1, needed.end(), beside * each_bytes(*m.beside));
    instruments_->memories.make_room(needed, most_bytes());
    return std::make_unique<GpuWatch>(m, devices_, *instruments_, warm, blocks, beside, clock_ghz());
  }
  std::optional<NumericCheck> check(const DeviceMeasurement& m) override {
    if (collective(m.work)) return check_of_collective(m);
    static_cast<void>(cut(m.virtual_devices));
    if (!instruments_) instruments_.emplace(device_);
    return job_of(m, {devices_, 0, 0}, 1, instruments_->memories[0])->check();
  }
  double now() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

 private:
  std::string refusal_of_collective(const DeviceMeasurement& m) {
    if (m.work == DeviceWork::RingAllReduce)
      return 2 * m.size.values * m.members > most_bytes() ? "larger than half of the GPU's free memory" : "";
    std::string why = refusal_among(m, system_.gpus);
    return !why.empty() || copies_between(m) ? why : nccl_.refusal();
  }
  std::unique_ptr<Stopwatch> watch_of_collective(const DeviceMeasurement& m) {
    if (m.work == DeviceWork::RingAllReduce) {
      static_cast<void>(cut(m.virtual_devices));
      return ring_watch(m, devices_, clock_ghz());
    }
    if (copies_between(m)) return guarded([&] { return peer_watch(m); });
    return nccl_.watch(m.work, m.members, static_cast<std::int64_t>(m.size.values));
  }
  std::optional<NumericCheck> check_of_collective(const DeviceMeasurement& m) {
    if (m.work == DeviceWork::RingAllReduce) {
      static_cast<void>(cut(m.virtual_devices));
      return ring_check(m, devices_);
    }
    if (copies_between(m)) return guarded_check([&] { return peer_check(m); });
    return nccl_.check(m.work, m.members, static_cast<std::int64_t>(m.size.values));
  }
  static bool copies_between(const DeviceMeasurement& m) {
    return m.work == DeviceWork::PeerCopy || m.work == DeviceWork::PeerCopyByHost;
  }
  // That do something else meanwhile: other groups, or a second stream.
  static int others(const DeviceMeasurement& m) { return std::max(1, m.busy - 1); }
  std::int64_t each_bytes(const DeviceMeasurement& m) const {
    return block_bytes(m, *backend_of(devices_, 0, m.precision)).value;
  }
  // Of one of so many jobs, which share the memory.
  ColdBlocks blocks_of(const DeviceMeasurement& m, int jobs, bool warm) const {
    if (warm) return {1, kMostGpuPasses};
    const auto backend = backend_of(devices_, 0, m.precision);
    const auto room = static_cast<std::int64_t>(
        most_bytes() / static_cast<double>(std::max<std::int64_t>(block_bytes(m, *backend).value, 1)) / jobs);
    return cold_blocks(touched_bytes(m, *backend), gpu_.l2, room, kMostGpuBlocks);
  }
  // What is beside it must be seen to last longer (GpuWatch::covered).
  bool pairs_can_be_timed() {
    if (devices_->count() == 1) return true;
    if (!comparable_) comparable_ = comparable_groups(*devices_);
    return *comparable_;
  }
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
  std::optional<bool> comparable_;  // events of two groups, once it was tried
  NcclAmong nccl_ = gpu_nccl();
};

}  // namespace

std::unique_ptr<DeviceUnderTest> gpu_under_test(int device, const std::string& date, const std::string& revision) {
  if (gpu_count() == 0) throw GpuError(gpu_status());
  return std::make_unique<Gpu>(device, date, revision);
}

}  // namespace pipewright::calibrate
