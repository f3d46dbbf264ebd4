// Messages and sums by NCCL, from GPU to GPU, of a process per worker: around the endpoint of the process, whose wire
// carries words: a message has been sent, a slot is free again, a worker has failed.
//
//     send      waits for the word that the slot is free, gives the word that the message comes, and sends it on the
//               worker's own stream, behind its arithmetic
//     receive   waits for that word, then for the device. What a step will bring is asked for early: the first messages
//               of every sender when the step begins, every later one when its slot is given back, before the sender
//               hears of it. So whoever sends finds somebody who receives, whatever the schedule: no cycle of senders
//               who wait for one another
//
// NCCL matches what two members send and receive by its order, and runs the operations of one communicator one after
// the other [nccl.h, ncclSend]. Hence one communicator, and at the receiver one stream, for every sender and receiver
// of messages, both directions apart: a receive that waits keeps nothing back but later ones of the same sender. Their
// order is that of the sender's list of ops, which both sides know. A later message of a sender may not overtake an
// earlier one whose slot is not free: nor could the sender, who sends one after the other.
//
// Sums: one communicator for every set of members, on the collective stream. NCCL adds in an order of its own: with two
// members these are the bits of the other transports, with more they need not be. Parts of weights are gathered in the
// worker's thread; what gathers beside sums is refused (nccl_ranks.hpp).
//
// A wait for the device ends when an operation of NCCL has failed, when the run has failed elsewhere, or after the
// timeout; the communicators are then aborted, so that the device's memory can be given back.
//
// Tests: tests/runtime/nccl_test.cpp, on the host's memory and a library of the tests' own
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/nccl.hpp"
#include "runtime/run_plan.hpp"
#include "runtime/transport.hpp"

namespace pipewright::runtime {

// Where NCCL's work is queued, and how its end is seen.
class NcclQueue {
 public:
  virtual ~NcclQueue() = default;
  virtual void* stream() = 0;  // as NCCL takes it
  // Behind all that is queued now; how many marks there were before it.
  virtual std::int64_t mark() = 0;
  virtual bool passed(std::int64_t mark) = 0;
};
// On the mover's device: its own queue, behind all that it was asked for; or another one beside it.
enum class NcclPlace : std::uint8_t { Own, Beside };
using NcclQueueMaker = std::function<std::unique_ptr<NcclQueue>(Mover&, NcclPlace)>;

// A communicator of a run.
struct NcclGroup {
  std::vector<WorkerId> members;  // pair: sender, receiver; else ascending
  bool pair = false;
  bool gathers = false;  // parts of weights; else sums
};
// In the order in which all workers join theirs, so that nobody waits in a circle.
std::vector<NcclGroup> nccl_groups(const RunPlan& run);

// Messages of one step from one worker to another, in the order in which they are sent.
struct NcclMessage {
  int channel = 0;
  std::int32_t number = 0;  // of the step's messages of this channel, from 0
  struct Part {
    std::int64_t offset = 0, bytes = 0;  // in the slot
  };
  std::vector<Part> parts;
};
std::vector<NcclMessage> nccl_messages(const RunPlan& run, WorkerId from, WorkerId to);

// `words`: the endpoint of this process. `ids`: one for every group, as worker 0 has made them. Communicators are made
// when memory is bound. Throws NcclError, PeerSilent, Stopped.
std::unique_ptr<Transport> nccl_transport(std::unique_ptr<Transport> words, const RunPlan& run, WorkerId self,
                                          std::shared_ptr<const NcclLibrary> library, const std::vector<NcclId>& ids,
                                          NcclQueueMaker queue, double timeout_s);

}  // namespace pipewright::runtime
