// Memory of a device, and what moves it. What a worker holds lies there; nobody but the device and its movers may read
// or write behind such a pointer. A device whose memory is the host's uses what is here.
//
// Tests: every schedule with memory that the host cannot read, tests/runtime/far_memory_test.cpp
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/units.hpp"

namespace pipewright::runtime {

// A stretch of addresses; given back with the object. What it holds at first is not said.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::byte* base) : base_(base) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  virtual ~DeviceMemory() = default;
  std::byte* base() const { return base_; }  // a multiple of the backend's alignment

 private:
  std::byte* base_;
};

// Used by one thread. Copies and sums within devices may be behind until `finish`; what uploads read and downloads
// write is the caller's again when the call returns.
class Mover {
 public:
  virtual ~Mover() = default;
  virtual void finish() {}
  virtual void copy(void* to, const void* from, Bytes bytes) = 0;  // between devices of this process, or within one
  virtual void upload(void* to, const void* from_host, Bytes bytes) = 0;
  virtual void download(void* to_host, const void* from, Bytes bytes) = 0;
  // to[i] = terms[0][i] + terms[1][i] + ..., added in this order; `to` may be one of the terms.
  virtual void sum(float* to, std::span<const float* const> terms, std::int64_t elements) = 0;
  // Memory of the host that uploads and downloads reach fastest. Throws OutOfArena.
  virtual std::unique_ptr<DeviceMemory> staging(Bytes size) const;
};

// Taken from the system at once, so that no step pays for a first touch. Throws OutOfArena.
std::unique_ptr<DeviceMemory> host_memory(Bytes size);
std::unique_ptr<Mover> host_mover();

// Of freed memory: what is read too late shows.
void fill_with_nan(Mover& mover, std::byte* block, std::int64_t bytes);

// Whose a mover is: of the thread that computes, sums gradients or gathers weights.
enum class MoverFor : std::uint8_t { Worker, Sums, Gathers };

// Those of a worker, one for each of its threads; its transport moves messages, sums and gathered weights with them.
struct Movers {
  Mover* worker = nullptr;      // in order with the worker's arithmetic
  Mover* collective = nullptr;  // beside it
  Mover* gathers = nullptr;     // likewise; the worker's, where weights are gathered in its thread
};

}  // namespace pipewright::runtime
