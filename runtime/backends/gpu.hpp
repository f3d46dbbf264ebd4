// The GPU backend: every worker has a group of a GPU's SMs (a virtual device) with a stream for its arithmetic, one for
// its sums and one for its gathers, which wait for nothing of each other, and one block of the GPU's memory that its
// arena is laid over. Arithmetic: gpu_kernels.hpp.
//
// Nothing of it has run on a GPU yet (docs/how-it-works/gpu.md). The same operations run on the CPU in
// tests/runtime/grid_backend_test.cpp.
#pragma once

#include <memory>

#include "kernels/gpu_api.hpp"
#include "runtime/backend.hpp"
#include "runtime/transports/nccl.hpp"

namespace pipewright::runtime {

struct GpuArithmetic {
  Precision precision = Precision::Fp32;
  bool library = false;  // products of linear layers by cuBLASLt, without workspace
};

constexpr int kStreamsOfWorker = 3;  // by MoverFor

// A backend of the worker that uses group `group`; it keeps the devices alive. Groups have kStreamsOfWorker streams.
// `facts`: what `device()` returns, with the SMs of the group filled in. Throws GpuError; InputError where the GPU cannot
// run this build's kernels.
std::unique_ptr<Backend> gpu_backend(const std::shared_ptr<VirtualDevices>& devices, int group, DeviceFacts facts,
                                     const GpuArithmetic& how);

// The stream of a mover of such a backend, or another one on its GPU, for NCCL.
std::unique_ptr<NcclQueue> gpu_nccl_queue(Mover& mover, NcclPlace place);

// What a GPU's backend says of sizes, on any machine: alignment, workspaces, what it refuses. It computes nothing:
// PP_CHECK.                                                    tests/runtime/grid_backend_test.cpp "sizes"
std::unique_ptr<Backend> gpu_sizes(Precision precision);
constexpr Bytes kGpuAlignment{512};  // of every block

}  // namespace pipewright::runtime
