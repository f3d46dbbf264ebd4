// Workers as threads of one process: a message is one copy into the receiver's slot, by the sender.
#pragma once

#include <memory>
#include <vector>

#include "runtime/run_plan.hpp"
#include "runtime/transport.hpp"

namespace pipewright::runtime {

struct WaitSettings {
  bool spin = true;           // while workers <= cores; else a waiting thread sleeps
  bool beside_sleep = false;  // those of sums and of gathers do: they share the core of their worker's arithmetic
  double timeout_s = 120;     // until a silent peer ends the run
};

// Throttled links: a message becomes readable at
//     sent = max(link free, copied) + bytes / bandwidth;   link free = sent;   readable = sent + latency
// as the simulator prices it; both directions and all pairs of workers are links of their own. The sender is busy for
// the copy alone.                                          tests/runtime/transport_test.cpp "throttled"
struct Throttle {
  Bandwidth bandwidth;
  Time latency;
};
// By sending and receiving worker: [from * workers + to]; empty: no link is throttled.
using Throttles = std::vector<Throttle>;

// Endpoints of all workers: [worker].
std::vector<std::unique_ptr<Transport>> local_transport(const RunPlan& run, WaitSettings settings,
                                                        Throttles throttles = {});

}  // namespace pipewright::runtime
