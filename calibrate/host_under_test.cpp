#include "calibrate/host_under_test.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>
#include <utility>

#include <unistd.h>

#include "calibrate/calibrate.hpp"
#include "calibrate/clock.hpp"
#include "calibrate/device_jobs.hpp"
#include "runtime/backends/cpu.hpp"

namespace pipewright::calibrate {
namespace {

constexpr std::int64_t kColdBytes = 64 << 20, kMostColdBlocks = 4096;
constexpr double kMostHostWork = 4e9, kMostHostValues = 16 << 20;  // larger ones take a core long, ten times over
constexpr double kHostReadingNs = 20e3;                            // 500 times what reading the clock takes

class HostWatch final : public Stopwatch {
 public:
  HostWatch(std::unique_ptr<DeviceJob> job) : job_(std::move(job)) {
    job_->launch();
    const double once = timed(1);
    passes_ = std::clamp<std::int64_t>(static_cast<std::int64_t>(kHostReadingNs / std::max(once, 1.0)), 1, 10'000);
  }
  Reading time() override { return {timed(passes_) / static_cast<double>(passes_)}; }
  void pause(double seconds) override { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

 private:
  // By the thread's own clock: what else runs on the core does not count.
  static double thread_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
  }
  double timed(std::int64_t passes) {
    const double begin = thread_ns();
    for (std::int64_t i = 0; i < passes; ++i)
      job_->launch();
    return thread_ns() - begin;
  }
  std::unique_ptr<DeviceJob> job_;
  std::int64_t passes_ = 1;
};

class Host final : public DeviceUnderTest {
 public:
  Host(std::string date, std::string revision) : backend_(cpu_backend()) {
    const Fingerprint machine = fingerprint(*backend_, revision);
    facts_.gpu = "one core of " + machine.processor, facts_.driver = "none", facts_.toolkit = machine.isa;
    facts_.date = std::move(date), facts_.revision = std::move(revision), facts_.sms = 1;
  }
  MeasuredDevice facts() const override { return facts_; }
  Bytes memory() const override {
    return Bytes{static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE)};
  }
  int sms(int) override { return 1; }
  std::string refusal(const DeviceMeasurement& m) override {
    if (m.virtual_devices > 1) return "a core has no virtual devices";
    if (collective(m.work)) return "a core is alone";
    if (m.beside != nullptr) return "a core does one thing at a time";
    if (!computed(m.work) && m.work != DeviceWork::Copy) return "a core has none";
    if (m.size.work() > kMostHostWork || m.size.values > kMostHostValues) return "too large for a core";
    return refusal_of(m, *backend_);
  }
  std::unique_ptr<Stopwatch> stopwatch(const DeviceMeasurement& m, bool warm) override {
    const std::int64_t each = block_bytes(m, *backend_).value;
    const std::int64_t blocks = warm ? 1 : std::clamp<std::int64_t>(kColdBytes / each + 1, 1, kMostColdBlocks);
    return std::make_unique<HostWatch>(device_job(m, cpu_backend(), blocks, memory_));
  }
  std::optional<NumericCheck> check(const DeviceMeasurement& m) override {
    return device_job(m, cpu_backend(), 1, memory_)->check();
  }
  double now() override { return now_ns() * 1e-9; }

 private:
  std::unique_ptr<Backend> backend_;
  MeasuredDevice facts_;
  JobMemory memory_;
};

}  // namespace

std::unique_ptr<DeviceUnderTest> host_under_test(const std::string& date, const std::string& revision) {
  return std::make_unique<Host>(date, revision);
}

}  // namespace pipewright::calibrate
