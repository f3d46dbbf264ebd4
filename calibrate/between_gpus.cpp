#include "calibrate/between_gpus.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace pipewright::calibrate {
namespace {

// `work` done; what it throws of NCCL or a GPU goes to `fails`.
template <class Work, class Fails>
auto caught(const Work& work, const Fails& fails) {
  try {
    return work();
  } catch (const NcclError& error) {
    return fails(error.what());
  } catch (const GpuError& error) {
    return fails(error.what());
  }
}

class Guarded final : public Stopwatch {
 public:
  Guarded(std::unique_ptr<Stopwatch> watch, Failed failed) : watch_(std::move(watch)), failed_(std::move(failed)) {}
  Reading time() override {
    if (watch_ == nullptr) throw NotTimed("a reading failed before");
    return caught([&] { return watch_->time(); },
                  [&](const std::string& words) -> Reading {
                    watch_.reset();
                    if (failed_) failed_(words);
                    throw NotTimed(words);
                  });
  }
  void pause(double seconds) override {
    if (watch_ != nullptr) watch_->pause(seconds);
  }

 private:
  std::unique_ptr<Stopwatch> watch_;
  Failed failed_;
};

}  // namespace

std::string refusal_among(const DeviceMeasurement& m, const std::vector<GpuFacts>& gpus) {
  if (gpus.size() < 2) return "there is one GPU";
  const bool copy = m.work == DeviceWork::PeerCopy || m.work == DeviceWork::PeerCopyByHost;
  Bytes least = gpus[at(copy ? m.from : 0)].free_memory;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const int number = static_cast<int>(i);
    if (copy ? number != m.from && number != m.to : number >= m.members) continue;
    if (!gpus[i].refusal.empty()) return fmt::format("GPU {} cannot take part: {}", i, gpus[i].refusal);
    least = std::min(least, gpus[i].free_memory);
  }
  if (2 * m.size.values > static_cast<double>(least.value) / 2) return "larger than half of the GPU's free memory";
  if (m.work != DeviceWork::PeerCopy) return "";
  const auto& peers = gpus[at(m.from)].peers;
  const bool direct =
      std::ranges::any_of(peers, [&](const GpuPeer& each) { return each.device == m.to && each.direct; });
  return direct ? "" : "no direct link between two GPUs";
}

std::unique_ptr<Stopwatch> guarded(const std::function<std::unique_ptr<Stopwatch>()>& make, const Failed& failed) {
  return caught([&]() -> std::unique_ptr<Stopwatch> { return std::make_unique<Guarded>(make(), failed); },
                [&](const std::string& words) -> std::unique_ptr<Stopwatch> {
                  if (failed) failed(words);
                  throw NotTimed(words);
                });
}

std::optional<NumericCheck> guarded_check(const std::function<NumericCheck()>& check, const Failed& failed) {
  return caught([&] { return std::optional(check()); },
                [&](const std::string& words) -> std::optional<NumericCheck> {
                  if (failed) failed(words);
                  return std::nullopt;
                });
}

NcclAmong::NcclAmong(BackendMaker backend, NcclQueueMaker queue, Bytes largest, double timeout_s, Opener open)
    : backend_(std::move(backend)),
      queue_(std::move(queue)),
      largest_(largest),
      timeout_s_(timeout_s),
      open_(std::move(open)) {}

const std::string& NcclAmong::refusal() {
  if (refusal_.empty() && library_ == nullptr) try {
      library_ = open_();
    } catch (const NcclError& error) {
      refusal_ = error.what();
    }
  return refusal_;
}

NcclMembers& NcclAmong::among(int gpus) {
  if (!refusal().empty()) throw NcclError(refusal_);
  if (members_ == nullptr || members_->count() != gpus) {
    members_.reset();
    members_ = std::make_unique<NcclMembers>(library_, gpus, backend_, queue_, largest_, timeout_s_);
  }
  return *members_;
}

Failed NcclAmong::failing() {
  return [this](const std::string& words) {
    refusal_ = words;
    members_.reset();
  };
}

std::unique_ptr<Stopwatch> NcclAmong::watch(DeviceWork work, int gpus, std::int64_t bytes) {
  return guarded([&] { return nccl_watch(among(gpus), work, bytes); }, failing());
}

std::optional<NumericCheck> NcclAmong::check(DeviceWork work, int gpus, std::int64_t bytes) {
  return guarded_check([&] { return among(gpus).check(work, bytes); }, failing());
}

}  // namespace pipewright::calibrate
