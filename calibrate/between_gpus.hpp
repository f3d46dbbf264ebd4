// What takes several GPUs, as a calibration of one of them sees it: what goes wrong there leaves a measurement out and
// ends nothing.
//
// Tests: tests/runtime/nccl_test.cpp "of a calibration", tests/calibrate/device_loop_test.cpp "another GPU"
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/device_loop.hpp"
#include "calibrate/nccl_members.hpp"
#include "kernels/gpu_api.hpp"

namespace pipewright::calibrate {

// Why a copy between two of these GPUs, or a collective among the first of them, cannot be timed, or "": there is one
// GPU; one of those taking part cannot be used; twice the bytes are more than half of what is free on one of them; no
// direct link. `gpus`: by their number.
std::string refusal_among(const DeviceMeasurement& m, const std::vector<GpuFacts>& gpus);

// NcclError and GpuError, of making it and of its readings, become NotTimed; `failed` hears their words before.
using Failed = std::function<void(const std::string& words)>;
std::unique_ptr<Stopwatch> guarded(const std::function<std::unique_ptr<Stopwatch>()>& make, const Failed& failed = {});
// Likewise nothing: why is told where it is timed.
std::optional<NumericCheck> guarded_check(const std::function<NumericCheck()>& check, const Failed& failed = {});

// NCCL among the first GPUs of this machine; communicators stay while their number does. What once failed is aborted,
// and not asked again: its words are the refusal of all that follows.
class NcclAmong {
 public:
  using Opener = std::function<std::shared_ptr<const NcclLibrary>()>;
  NcclAmong(
      BackendMaker backend, NcclQueueMaker queue, Bytes largest, double timeout_s,
      Opener open = [] { return NcclLibrary::open(); });

  NcclAmong(const NcclAmong&) = delete;
  NcclAmong& operator=(const NcclAmong&) = delete;

  const std::string& refusal();  // "": none
  std::unique_ptr<Stopwatch> watch(DeviceWork work, int gpus, std::int64_t bytes);
  std::optional<NumericCheck> check(DeviceWork work, int gpus, std::int64_t bytes);

 private:
  NcclMembers& among(int gpus);
  Failed failing();

  BackendMaker backend_;
  NcclQueueMaker queue_;
  Bytes largest_;
  double timeout_s_;
  Opener open_;
  std::shared_ptr<const NcclLibrary> library_;
  std::unique_ptr<NcclMembers> members_;
  std::string refusal_;
};

}  // namespace pipewright::calibrate
