// Kernels that compute nothing: what a measurement of a GPU is made with.
//
// Delays and gates hold one thread of one SM each. The globaltimer counts nanoseconds; how finely it ticks is the
// GPU's affair (1 us on many).
//
// Tests: tests/kernels/gpu_test.cpp
#pragma once

#include <cstdint>

#include "kernels/gpu_api.hpp"

namespace pipewright::kernels {

// Throws GpuError when the current device cannot run this build's kernels (its architecture is not among them).
void check_kernels_run();

void launch_empty(GpuStream stream);
// The stream goes on `time` later, by the globaltimer.
void launch_delay(GpuStream stream, Time time);

// Cycles of the SM clock and nanoseconds of the globaltimer over one stretch: cycles / nanoseconds is the clock in GHz.
struct SmClockReading {
  std::int64_t cycles, nanoseconds;
};
// reading: the device's.
void launch_clock_probe(GpuStream stream, Time stretch, SmClockReading* reading);

// ids[b]: the number of the SM that block b ran on; every block stays `stay` long, so that the blocks spread.
void launch_sm_probe(GpuStream stream, int blocks, Time stay, std::uint32_t* ids);

// Pushes everything else out of the L2 by writing a block of its size.
class L2Flush {
 public:
  explicit L2Flush(int device);
  void launch(GpuStream stream);

 private:
  GpuMemory block_;
};

// Holds a stream until everything that is to be timed has been put into it, so that the cost of launching does not
// show (nvbench's "blocking kernel"). Kernels behind a gate must have run once before: loading one may wait for the
// whole device, and so for the gate.
class StreamGate {
 public:
  explicit StreamGate(int device);
  ~StreamGate();
  void close(GpuStream stream);
  // Throws GpuError when the gate had to open by itself after 10 s: what was timed is worth nothing then.
  void open();

 private:
  GpuMemory flags_;  // pinned: {open, gave up}
};
// Opens it also where asking for something fails: what waits at the gate would keep the stream for its ten seconds.
struct OpenAtLast {
  StreamGate& gate;
  ~OpenAtLast() {
    try {
      gate.open();
    } catch (const GpuError&) {  // told before
    }
  }
};

}  // namespace pipewright::kernels
