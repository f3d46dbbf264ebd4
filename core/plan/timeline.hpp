// What happened when. Written by the simulator, and by a real run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.hpp"
#include "core/plan/schedule.hpp"
#include "core/units.hpp"

namespace pipewright::core {

struct Span {
  Time start, end;
  bool operator==(const Span&) const = default;
};

// Times of a worker's ops: element i belongs to op i of the same stream in Schedule::positions.
struct LaneTimes {
  std::vector<Span> compute;
  ByStream<std::vector<Span>> communication;
  bool operator==(const LaneTimes&) const = default;
};

struct Transfer {
  std::uint32_t edge = 0;
  Direction direction{};
  MicroBatchId micro_batch = 0;
  WorkerId from = 0, to = 0;
  Bytes bytes;
  Time posted;   // producer's end
  Time start;    // on the wire
  Time sent;     // left the sender
  Time arrived;  // usable at the receiver
  bool operator==(const Transfer&) const = default;
};

enum class EngineRan : std::uint8_t { StaticOrder, EventQueue, RealRun };
std::string_view name(EngineRan engine);  // "static order", "event queue", "real run"

struct Timeline {
  std::vector<LaneTimes> workers;   // by WorkerId
  std::vector<Transfer> transfers;  // by (from, order of that worker's ops)
  Time makespan;                    // last end of any op
  EngineRan engine{};
  std::string engine_reason;  // why this engine, one clause
};

// One steady period of an asynchronous schedule: `micro_batches` more take `growth` more, exactly.
struct SteadyState {
  std::int64_t micro_batches = 1;  // per period (and copy)
  Time growth;                     // duration of a period
  Time busy;                       // compute time of all workers in one period, updates included
  Time update;                     // of it, updates
  bool exact = true;               // false: no period found, averaged over the second half of a long run
  std::int64_t simulated = 0;      // micro-batches of the run that it was found in
  EngineRan engine{};              // that simulated it
};

}  // namespace pipewright::core
