// Times a list of measurements on a device, as long as the time lasts.
//
// The device stands behind a seam, so that the loop is tested on devices that are made up. Each measurement is sampled
// by the rule of calibrate/sampling.hpp with inputs outside the cache, and after all of them again with inputs inside
// it while the budget lasts. One of them, the first that takes 50 us or more, is timed again after every `again_after`
// others: how much its mean moves is the error that all times share (`repeat_error`).
//
// Before the first time of an operation's pass at a precision, its result at the smallest such size of the list is
// compared with a reference (numeric_check.hpp), outside of what is timed; of linear layers on each kind of virtual
// device, as a library multiplies in another way on each. `result_error` stands at the series of the kind that was
// compared. Where it is wrong, all of it is left out
// with that reason: its times are worth nothing, but those of the other operations are, and prices fall back for this
// one.
//
// Of a pair the one is timed alone, and at once after that beside the other: how much longer it takes then.
//
// What the device refuses (with the reason), what failed (NotTimed, OutOfArena, GpuError: with its words), what stayed
// at a slow clock and what there was no time for goes to `left_out`, one line per precision and reason, with the number
// of measurements of each operation. After each failure the device is asked whether it still works, as a kernel that
// fails takes all of CUDA of its process with it. If it does not, nothing more is begun: what was measured is kept,
// and the rest is left out with that reason (`kLost`). Anything else that is thrown ends the calibration.
//
// Series and sizes are in an order of their own: the same times give the same device, whatever was timed first.
//
// Tests: tests/calibrate/device_loop_test.cpp
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/device_list.hpp"
#include "calibrate/numeric_check.hpp"
#include "calibrate/sampling.hpp"
#include "core/cluster/measured_device.hpp"

namespace pipewright::calibrate {

// Thrown by a stopwatch: the measurement cannot be timed after all, and is left out with these words.
struct NotTimed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class DeviceUnderTest {
 public:
  virtual ~DeviceUnderTest() = default;
  virtual MeasuredDevice facts() const = 0;                               // without series
  virtual Bytes memory() const = 0;                                       // in all
  virtual int gpus() const { return 1; }                                  // that copies can be made between
  virtual int sms(int virtual_devices) = 0;                               // of one of so many groups
  virtual std::string refusal(const DeviceMeasurement& measurement) = 0;  // why it cannot be timed here, or ""
  virtual std::string lost() { return ""; }  // after a failure: why nothing more can be timed, or ""
  // What `time()` returns is one pass, while others do the same or, where the measurement is a pair, what is beside it:
  // for all of what is timed. `warm`: the same inputs again and again, else ones that are in no cache.
  virtual std::unique_ptr<Stopwatch> stopwatch(const DeviceMeasurement& measurement, bool warm) = 0;
  // One pass of it, alone, beside the reference. Nothing: there is none.
  virtual std::optional<NumericCheck> check(const DeviceMeasurement&) { return std::nullopt; }
  virtual double now() = 0;  // seconds, of any clock that only grows
};

inline constexpr std::string_view kLost = "the device can no longer be used";  // begins such a reason

// The first line of `left_out` that says so; "": the device was there to the end.
std::string lost_line(const MeasuredDevice& measured);

struct DeviceSettings {
  double seconds = 480;  // after which nothing more is begun
  bool warm = true;
  SamplingRule rule;
  std::int64_t again_after = 100;
  std::function<void(const std::string& what, std::int64_t done, std::int64_t all)> progress = {};
};

MeasuredDevice measure(DeviceUnderTest& device, const std::vector<DeviceMeasurement>& list,
                       const DeviceSettings& settings);

}  // namespace pipewright::calibrate
