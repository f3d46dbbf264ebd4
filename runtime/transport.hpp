// The seam between workers: messages into slots, sums of gradients, meetings.
//
// A message has a number that grows from step to step; it goes into slot `slot` of its channel at the receiver, once
// message `before` (0: none) has been read there. One endpoint per worker; its compute thread and its collective thread
// use it at once, for different calls.
//
// Every wait ends: with what it waited for, with `Stopped` when another worker has failed, or with `PeerSilent` after
// the timeout.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/ending.hpp"
#include "core/ids.hpp"
#include "core/units.hpp"
#include "runtime/device_memory.hpp"

namespace pipewright::runtime {

class Stopped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
class PeerSilent : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Part of a message.
struct Piece {
  const std::byte* from = nullptr;
  std::int64_t offset = 0, bytes = 0;
};

// Where a part of a message goes.
struct Room {
  std::byte* to = nullptr;
  std::int64_t offset = 0, bytes = 0;
};

struct MessageSlot {
  int channel = 0;
  int slot = 0;
  std::int64_t number = 0;  // from 1
  std::int64_t before = 0;  // what lay in the slot before; 0: it was free
};

struct Sent {
  std::int64_t waited = 0;    // ns, for the slot
  std::int64_t readable = 0;  // ns of the clock at which the message may be read; 0: at once
};

class Transport {
 public:
  virtual ~Transport() = default;
  // The receiver's side of its incoming channels: [channel][slot]; channels to others are empty. What the worker's
  // memory is moved with: messages by `worker`, sums by `collective`. Before the first step; again with nothing before
  // the slots' memory is given back.
  virtual void bind(std::vector<std::vector<std::byte*>> slots, Movers movers) = 0;

  // Copies a message to its receiver. Waits for the slot, if need be, and for the device as far as it copies: who sends
  // to nobody (`Loopback` in executor.cpp) need not.
  virtual Sent send(const MessageSlot& message, std::span<const Piece> pieces) = 0;
  // Waits until the message may be read; where it lies.
  virtual std::byte* receive(const MessageSlot& message) = 0;
  // Brings a received message to that place, once; nothing where the sender has. It is work of the op that reads it.
  virtual void fetch(const MessageSlot&) {}
  virtual void release(const MessageSlot& message) = 0;
  // Of a channel that keeps what its sender takes back: brings parts of a message that this worker has sent into its own
  // memory. Asked by one thread at a time, beside the worker's; whoever keeps it does nothing for that.
  virtual void take_back(const MessageSlot&, std::span<const Room>) {
    check_failed("a transport that takes back", __FILE__, __LINE__);
  }

  // Replaces `data` on all members (workers of one virtual stage, ascending, this one among them) by their sum: every
  // element in the order of the members. All members call it in the same order.
  virtual void all_reduce(int group, std::span<const WorkerId> members, float* data, std::int64_t elements) = 0;

  // Half of it: member i then has the sums of elements begin[i] to begin[i + 1], the first of which is 0; what the others
  // are is not said. A transport that has nothing shorter sums all. Calls are in one order with those of all_reduce.
  virtual void reduce_scatter(int group, std::span<const WorkerId> members, float* data,
                              std::span<const std::int64_t> begin) {
    all_reduce(group, members, data, begin.back());
  }

  // Brings the members' parts of `data` together: member i has bytes begin[i] to begin[i + 1], and after it all have all.
  // Likewise all call it in the same order, from one thread at a time, while sums of the same group may run.
  virtual void all_gather(int group, std::span<const WorkerId> members, std::byte* data,
                          std::span<const std::int64_t> begin) = 0;

  virtual void meet() = 0;  // all workers of the run
  // Throws PeerSilent where this process was asked to end (core/ending.hpp): before each op, as a worker that waits for
  // nobody would not notice.
  virtual void check_asked_to_end() const {
    if (const int signal = asked_to_end(); signal != 0) throw PeerSilent(signal_name(signal) + " ended the run");
  }
  // This worker has failed: all waits end, also those of workers elsewhere, who are told why. "": because another one
  // has.
  virtual void stop(const std::string& why) noexcept = 0;
};

// What an endpoint knows of the run's other workers, for who waits for something that is not the endpoint's: a device.
class RunWatch {
 public:
  // Throws what a wait of the endpoint would end with: Stopped, PeerSilent. `what`: is waited for.
  virtual void check(const std::string& what) = 0;
  // "" or whose process does not answer: "; the process of worker 1 does not answer". Takes a second at most.
  virtual std::string who_is_silent() = 0;

 protected:
  ~RunWatch() = default;
};

}  // namespace pipewright::runtime
