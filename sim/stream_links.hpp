// What the two streams of a worker have to do with one another: which compute op completes the gradients of which
// all-reduce, and which all-reduces an update waits for. The same in every copy.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/schedule.hpp"
#include "core/units.hpp"
#include "sim/dependencies.hpp"

namespace pipewright {

// Ops are named by their index in their stream.
struct StreamLinks {
  struct Trigger {
    std::uint32_t op = 0, collective = 0;  // this op produces the last gradients of that all-reduce
    bool operator<(const Trigger& other) const { return op < other.op; }
  };
  std::vector<Trigger> triggers;            // by op
  std::vector<std::uint32_t> update_needs;  // per Update: how many all-reduces must be over (or more elements)
  std::vector<Time> gradient_ready;         // per all-reduce, as the step begins: 0 nothing to wait for, else kNever
};

StreamLinks stream_links(const Schedule& schedule, const Wiring& wiring, PositionId position);

}  // namespace pipewright
