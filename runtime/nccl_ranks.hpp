// What the processes of a run must settle before NCCL carries their messages: that each has it, in the same version,
// and a GPU of its own; and the ids of the run's communicators, which rank 0 makes and the wire carries.
//
// Tests: tests/runtime/nccl_test.cpp
#pragma once

#include <memory>
#include <string>

#include "kernels/nccl.hpp"
#include "runtime/rank_run.hpp"
#include "runtime/ranks.hpp"
#include "runtime/transports/nccl.hpp"

namespace pipewright::runtime {

// What a process brings.
struct NcclHere {
  std::shared_ptr<const NcclLibrary> library;
  std::string missing;  // why there is none, or ""
  std::string gpu;      // "0000:01:00.0"
  std::string machine;  // what tells machines apart: the boot id of its system
};
NcclHere nccl_here(std::string gpu);  // opens the library

// Throws InputError where gathers of weights run beside sums of gradients, which training.zero: 2 and 3 do: two threads
// queue them in an order of chance, and ranks that begin operations of several communicators in different orders may
// wait for one another for ever [NCCL, "Using multiple NCCL communicators concurrently"].
void check_for_nccl(const RunPlan& run, const Place& place);

// Throws InputError on all ranks, with the same text: who has no NCCL, or another version than rank 0, or the GPU of
// another rank.
void agree_on_nccl(Ranks& ranks, const NcclHere& here);

// By NCCL between the ranks of this run. Throws InputError on all ranks where rank 0 cannot make the ids.
AroundWire by_nccl(Ranks& ranks, const RunPlan& run, std::shared_ptr<const NcclLibrary> library, NcclQueueMaker queue,
                   double timeout_s);

}  // namespace pipewright::runtime
