// NCCL, opened when it is there: communicators of one process per GPU, their sends, receives, all-gathers and
// all-reduces.
//
// Nothing of it is linked and no header of it is needed, so that a build without CUDA has it, too (its tests bring a
// library of their own): what is used is declared here, as nccl.h has it since 2.14, whose `ncclConfig_t` begins with
// the four fields that are passed. Where CUDA's compiler is, nccl.cpp compares it with nccl.h.
//
// Addresses are the device's, or the host's as far as the device reaches them; streams are opaque handles.
// Communicators are made not to block [NCCL 2.14]: a call returns at once, and what it asked for is on its stream when
// `settled` says so. So a peer that never comes keeps nobody from giving up.
//
// Tests: tests/runtime/nccl_test.cpp
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "kernels/gpu_api.hpp"

namespace pipewright::kernels {

// "ncclSend of 4096 bytes to rank 1: unhandled system error (what NCCL says last)"
class NcclError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a communicator's members know one another by; made by one process, the same for all.
struct NcclId {
  std::array<char, 128> bytes{};
};

struct NcclCalls;

class NcclLibrary {
 public:
  // The file that PIPEWRIGHT_NCCL names, else libnccl.so.2 at the places of open_library.hpp. Throws NcclError: not
  // found, and where it was looked for; older than 2.14; a function that it lacks.
  static std::shared_ptr<const NcclLibrary> open();
  // Of the library at this place alone.
  static std::shared_ptr<const NcclLibrary> open(const std::string& path);

  int version() const { return version_; }               // 22809: 2.28.9
  const std::string& dotted() const { return dotted_; }  // "2.28.9"
  const std::string& path() const { return path_; }
  NcclId id() const;
  const NcclCalls& calls() const { return *calls_; }

 private:
  NcclLibrary() = default;
  int version_ = 0;
  std::string dotted_, path_;
  std::shared_ptr<const NcclCalls> calls_;
};

// What is known of it, also where it cannot be used. Never throws.
GpuLibrary nccl_told();

// Before the first call of a program that reaches CUDA's driver or NCCL, which read these once; what the user has set
// does not stay. Only for who uses several GPUs: all kernels of all libraries are then loaded at the start. A receive
// that waits on the device must keep nobody from working: CUDA loads all kernels at the start
// (CUDA_MODULE_LOADING=EAGER; a kernel that is loaded later may wait for those that run), and NCCL connects a
// communicator's members when it is made (NCCL_RUNTIME_CONNECT=0), so that nothing takes memory during a step.
void prepare_for_nccl();

// One stretch of a message.
struct NcclPart {
  std::byte* at = nullptr;
  std::int64_t bytes = 0;
};

// What one thread asks of several communicators of its own, on several GPUs: all of it between making one and `end`.
// Groups nest: those of a send or receive go out with the outermost.
class NcclTogether {
 public:
  explicit NcclTogether(std::shared_ptr<const NcclLibrary> library);  // throws NcclError, as `end` does
  ~NcclTogether();                                                    // ends it, whatever comes of it
  NcclTogether(const NcclTogether&) = delete;
  NcclTogether& operator=(const NcclTogether&) = delete;
  void end();

 private:
  std::shared_ptr<const NcclLibrary> library_;
  bool open_ = false;
};

// A process's membership. Used by one thread at a time.
class NcclComm {
 public:
  // As member `rank` of `ranks`, on the calling thread's device; the others are there when it has settled.
  NcclComm(std::shared_ptr<const NcclLibrary> library, const NcclId& id, int ranks, int rank);
  ~NcclComm();  // close
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // Whether what was asked for is on its stream; to be asked before anything else is asked for, and before the stream
  // is. Also afterwards: throws NcclError with what went wrong since.
  bool settled();

  // In the order of the stream. Of two members all sends must meet receives of as many bytes, in the same order.
  // Operations of one communicator run one after the other: a receive that waits keeps back what is asked for later.
  void send(std::span<const NcclPart> parts, int to, void* stream);
  void receive(std::span<const NcclPart> parts, int from, void* stream);
  // On all members: `data` holds a part of as many bytes for each, in their order; each brings its own.
  void all_gather(std::byte* data, std::int64_t bytes_each, void* stream);
  // Likewise: `data` becomes the sum, in an order of NCCL's own.
  void all_reduce(float* data, std::int64_t elements, void* stream);

  // Nothing more will be asked for. When it has settled, `close` waits for nobody.
  void finish();
  // Gives it back. What is still on its way is aborted: its streams go on, what it moved is lost.
  void close() noexcept;

 private:
  void check(int result);
  void grouped(std::span<const NcclPart> parts, int peer, void* stream, bool sends);

  std::shared_ptr<const NcclLibrary> library_;
  void* comm_ = nullptr;
  int rank_ = 0;
  bool finished_ = false, settled_ = false;
  std::string asked_;  // what was asked for last: "ncclSend of 4096 bytes to rank 1"
};

}  // namespace pipewright::kernels
