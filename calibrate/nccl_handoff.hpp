// What a message by NCCL costs from one GPU to another.
#pragma once

#include <memory>

#include "calibrate/handoff.hpp"
#include "runtime/transports/nccl.hpp"

namespace pipewright::calibrate {

// From rank 0 to rank 1, as runtime/transports/nccl.hpp sends them: the receive is asked for before, a word goes by the
// wire, the message by NCCL on the sender's own queue. `send` is what the sender waits for, and nothing is read twice.
// Others than rank 0 get nothing, without a second rank all do. Throws NcclError; PeerSilent after the timeout.
//                                                                              tests/runtime/nccl_test.cpp "hand-over"
Handoff measure_handoff(Ranks& ranks, const BackendMaker& backend, std::shared_ptr<const NcclLibrary> library,
                        const NcclQueueMaker& queue, double timeout_s);

}  // namespace pipewright::calibrate
