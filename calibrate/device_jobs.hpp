// Passes of steps, optimizers' steps and copies on a backend, again and again: what a calibration of a device times.
//
// A job works round blocks of the device's memory, each of which holds everything that one pass reads and writes. All
// values are random, between -1 and 1, but token numbers and labels, which are spread over their tables, and
// optimizers' means of squares, which lie between 0 and 1.
//
// Tests: tests/calibrate/host_under_test_test.cpp
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "calibrate/device_list.hpp"
#include "calibrate/numeric_check.hpp"
#include "runtime/backend.hpp"

namespace pipewright::calibrate {

class DeviceJob {
 public:
  virtual ~DeviceJob() = default;
  virtual void launch() = 0;  // one pass, on the next block; the device may be behind
  // How a library does it; nothing: none does.
  virtual std::optional<ProductAlgorithm> algorithm() const { return std::nullopt; }
  // One pass more, beside the reference (numeric_check.hpp). Nothing: it makes no values, or too many for the host.
  virtual std::optional<NumericCheck> check() { return std::nullopt; }
};

// Why the backend cannot do it, or "".
std::string refusal_of(const DeviceMeasurement& measurement, const Backend& backend);

// Memory that one job after the other uses: taken anew only when one needs more.
class JobMemory {
 public:
  std::byte* at_least(Backend& backend, Bytes size);
  Bytes size() const { return size_; }

 private:
  std::unique_ptr<DeviceMemory> memory_;
  Bytes size_;
};

// That of all jobs of a measurement, by their number, for those of the next.
class JobMemories {
 public:
  JobMemory& operator[](std::size_t job);
  // Before jobs that need so much each: gives all back where that and what is kept are more than `most` together.
  void make_room(std::span<const std::int64_t> needed, double most);
  void clear() { memories_.clear(); }
  Bytes kept() const;

 private:
  std::deque<JobMemory> memories_;
};

// Why a device does not hold it in `most` bytes, or "". `each`: bytes of a block of it; `beside`: of all that is beside
// it. What is large has no more than the part of one of as many virtual devices as there are.
std::string too_large(const DeviceMeasurement& measurement, std::int64_t each, std::int64_t beside, double most);

// Of all that its passes read and write: values, gradients and what lies between them.
Bytes block_bytes(const DeviceMeasurement& measurement, const Backend& backend);
// What one pass at least reads and writes of it: of a table no more rows than there are values that come of them.
Bytes touched_bytes(const DeviceMeasurement& measurement, const Backend& backend);

// Blocks to go round, so that a pass finds nothing of its block in a cache: twice the cache is touched in between.
// Where there is no `room` for so many, `passes` that begin with an empty cache meet none twice; else there may be
// `most`.
struct ColdBlocks {
  std::int64_t blocks = 1, passes = 1;
  bool operator==(const ColdBlocks&) const = default;
};
ColdBlocks cold_blocks(Bytes touched, Bytes cache, std::int64_t room, std::int64_t most);

// A step, an update, or a copy on the device; other work is the device's own. It keeps the backend. What gradients read
// has been made by forwards; everything is done when this returns. One job at a time lies in `memory`, which outlives
// it. Throws OutOfArena.
std::unique_ptr<DeviceJob> device_job(const DeviceMeasurement& measurement, std::unique_ptr<Backend> backend,
                                      std::int64_t blocks, JobMemory& memory);

// Whether `bytes` of the device at `to` are those at `from`, after `copy`, which is to make them so; error: the share
// of bytes that are not.
NumericCheck checked_copy(Backend& backend, std::byte* to, const std::byte* from, std::int64_t bytes,
                          const std::function<void()>& copy);

// Fills a device's memory with random values between -1 and 1, stored as that precision's tensors are; of two bytes
// each none is nearer to 0 than 0.5, and pairs of them are good fp32 values, too. Never 0.
void fill_random(Mover& mover, std::byte* block, std::int64_t bytes, Precision precision = Precision::Fp32);

}  // namespace pipewright::calibrate
