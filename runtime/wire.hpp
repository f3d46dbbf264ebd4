// What moves bytes between the processes of a run: frames, in order from one rank to another.
//
// A frame is a header and a body. Several threads may send at once; one thread receives, always, so that no sender
// waits for a receiver that computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/launch.hpp"

namespace pipewright::runtime {

// As it travels: ranks run the same program on the same kind of processor.
struct FrameHeader {
  std::int32_t kind = 0;  // of ranks.cpp
  std::int32_t id = 0;    // channel, all-reduce group, or what mail is about
  std::int64_t number = 0;
  std::int32_t slot = 0;
  std::int32_t from = 0;
  std::int64_t bytes = 0;  // of the body
};
static_assert(sizeof(FrameHeader) == 32);

class FrameReader {
 public:
  virtual ~FrameReader() = default;
  // Throws std::runtime_error for a header that makes no sense.
  virtual void begin(const FrameHeader& header) = 0;
  // Where the body goes on behind the `have` bytes that are there; asked again when it is full. At least as many bytes
  // as are missing, or 16 MiB.
  virtual std::span<std::byte> room(const FrameHeader& header, std::int64_t have) = 0;
  virtual void end(const FrameHeader& header) = 0;          // the body is there
  virtual void gone(int rank, const std::string& why) = 0;  // nothing will come from there any more
};

class Wire {
 public:
  virtual ~Wire() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The parts, one after the other, are the body. They may be changed once this returns. To a rank that is gone:
  // nothing happens. Throws PeerSilent when the rank reads nothing until the timeout.
  virtual void send(int to, const FrameHeader& header, std::span<const std::span<const std::byte>> parts) = 0;
  virtual void hasten() noexcept {}  // the run has failed: no call waits longer than a second until it is calm
  virtual void calm() noexcept {}
  // Handles what has come; waits some milliseconds for something. `hurry`: a thread of this process waits for it.
  virtual void receive(FrameReader& reader, bool hurry) = 0;
  // The last call. Not orderly: some rank may be gone, or hang; all processes that are left must end with `status`.
  virtual void close(bool orderly, int status) noexcept = 0;
};

// Sockets between all ranks; rank 0 waits at the meeting point until all others have come. Throws InputError: who is
// missing after the timeout, who came twice, who counts differently.
std::unique_ptr<Wire> tcp_wire(const Launch& launch, const MeetingPoint& point, double timeout_s);

// Open MPI. Throws InputError where this program was built without it, or MPI counts otherwise than the launcher's
// variables.
std::unique_ptr<Wire> mpi_wire(const Launch& launch);

}  // namespace pipewright::runtime
