// Collectives by NCCL among the GPUs of one process: what a calibration of a device times between GPUs.
//
// Every member has a GPU, a stream and a communicator of its own; one thread asks all of them. As nccl-tests does, some
// passes are asked for one after the other, and the host's clock says when all members have done the last: of short
// ones the asking shows. Sizes are those of nccl-tests, too: of an all-reduce one member's buffer, of an all-gather
// what each has afterwards, rounded down to parts of 16 bytes. Everything is in place. What all members do is one group
// of NCCL's, as it must be where one thread asks for several GPUs; each pass is one of its own, else NCCL would do them
// together.
//
// Nothing of it has run on a GPU. Tests: tests/runtime/nccl_test.cpp "members of one process", by a library of their
// own
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "calibrate/numeric_check.hpp"
#include "calibrate/sampling.hpp"
#include "runtime/transports/nccl.hpp"

namespace pipewright::calibrate {

class NcclMembers {
 public:
  // `largest`: bytes of a collective, at most. Throws NcclError, also where members do not meet in time; OutOfArena.
  NcclMembers(const std::shared_ptr<const NcclLibrary>& library, int members, const BackendMaker& backend,
              const NcclQueueMaker& queue, Bytes largest, double timeout_s);
  ~NcclMembers();
  NcclMembers(const NcclMembers&) = delete;
  NcclMembers& operator=(const NcclMembers&) = delete;

  int count() const { return static_cast<int>(members_.size()); }
  // Random values in all buffers, between -1 and 1: sums of sums would not stay numbers for long.
  void refill();
  // From the asking for the first of so many passes until every member has done the last, ns. work: NcclAllReduce,
  // NcclAllGather, NcclSend (from member 0 to 1).
  double time(DeviceWork work, std::int64_t bytes, int passes);
  NumericCheck check(DeviceWork work, std::int64_t bytes);

 private:
  std::int64_t part_bytes(std::int64_t bytes) const;  // of an all-gather, of each
  struct Member {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Mover> mover;
    std::unique_ptr<DeviceMemory> memory, first;  // `first` stays as it was filled
    std::unique_ptr<NcclQueue> queue;
    std::unique_ptr<NcclComm> comm;
  };
  void connect(const BackendMaker& backend, const NcclQueueMaker& queue);
  void close() noexcept;
  void ask(DeviceWork work, std::int64_t bytes);
  void settle();
  void finish();  // all that was asked for
  template <class Done>
  void until(const Done& done);
  std::vector<std::vector<std::byte>> contents(std::int64_t bytes);

  std::shared_ptr<const NcclLibrary> library_;
  std::vector<Member> members_;
  Bytes largest_;
  double timeout_s_;
};

// Of one size. `members` outlives it.
std::unique_ptr<Stopwatch> nccl_watch(NcclMembers& members, DeviceWork work, std::int64_t bytes);

}  // namespace pipewright::calibrate
