// Messages and sums through the host's memory, as between devices that do not reach one another's: around any transport
// whose slots may lie there.
//
// A message is two copies: by the sender into a block of the host's memory beside the slot, by the receiver from there
// into the slot, once it begins the op that reads it (`fetch`). The simulator prices links so with
// `cluster.node.links.peer_access: false`. Sums of gradients are downloaded, added by the host in the order of the
// members, and uploaded.                                            tests/runtime/far_memory_test.cpp "staged"
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/run_plan.hpp"
#include "runtime/transport.hpp"

namespace pipewright::runtime {

// How the transport within takes what is sent: with the mover it was given, or by reading it, from host memory.
enum class Takes : std::uint8_t { WithMover, ByReading };

std::unique_ptr<Transport> staged_transport(std::unique_ptr<Transport> within, const RunPlan& run, Takes takes);

}  // namespace pipewright::runtime
