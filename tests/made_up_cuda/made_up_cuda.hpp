// A made-up CUDA: the calls of CUDA's runtime and driver that this program makes, over the memory of the host. Linked
// in the place of cudart_static, it lets the whole of `--backend cuda` run on a machine without a GPU: the objects of
// the program are the same ones.
//
// It stands for what a driver says and refuses:
// - memory, streams, events, graphs and SM groups (green contexts) that are counted, and missed when they are left;
// - time: a stream does one thing after another, each from when it was asked for (a copy and a kernel take made-up
//   times); an event has passed when its stream has come to it, a wait holds a stream up, a gate until the host opens
//   it. Copies have their effect at their end, copies from memory that is not pinned when they are asked for;
// - refusals: events that have not passed, streams and events of another GPU, grids that no GPU takes, handles that are
//   gone, copies beyond a block, a call inside a recording that may not be there, too little memory, a failure of any
//   call when its turn comes, a kernel that fails while it runs (every later call of that GPU then fails, too);
// - where `events` says so, streams of SM groups that take events of their own context only;
// - what a driver would not notice is written down as misuse: a second free, a copy whose ends overlap, a stream or event
//   that outlives its SM group, a context left pushed.
//
// It cannot show: what a kernel computes (only the probes of kernels/probes.hpp do anything; the kernels' arithmetic is
// tested by tests/kernels), so memory keeps what copies, zeros and its beginning made of it; what a kernel reads or
// writes, also of blocks that are gone, or too early; how long anything takes on a GPU; what NVIDIA's libraries do
// (they are not found here); anything about a driver that its documentation does not say.
//
// Settings come from the environment variable MADE_UP_CUDA: "gpus=2 memory=8GiB fail=cudaMalloc:3:2" (machine.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "tests/made_up_cuda/ledger.hpp"
#include "tests/made_up_cuda/machine.hpp"
#include "tests/made_up_cuda/streams.hpp"

namespace pipewright::tests::made_up_cuda {

// What all calls share; one thread at a time is in it.
struct Cuda {
  Machine machine = machine_of_environment();
  std::mutex mutex;
  Ledger ledger;
  Streams streams;
  cudaError_t broken[kMostGpus] = {};  // what a kernel of a GPU failed with: its calls fail from then on
};
Cuda& cuda();

// Of the calling thread.
struct Thread {
  int device = 0;
  cudaError_t last = cudaSuccess;
  Stream* recording = nullptr;
  std::vector<const void*> pushed;  // contexts above the primary one
};
Thread& this_thread();

using Lock = std::unique_lock<std::mutex>;
// A call of the runtime: it is counted, fails where it is to fail, and finds the streams where they are by now.
cudaError_t call(const char* name, const std::function<cudaError_t(Lock&)>& body);
CUresult driver_call(const char* name, const std::function<CUresult(Lock&)>& body);
// Gives back what `name` is named after, also of a GPU that is broken.
cudaError_t closing_call(const char* name, const std::function<cudaError_t(Lock&)>& body);

// The stream behind a handle, the default one behind null; nullptr, and noted, where there is none.
Stream* stream_of(const char* call, cudaStream_t handle);
// What is asked of a stream, or recorded there.
void ask(Stream& stream, Item item);
// Until the stream has done what was asked of it; until the moment has passed.
void wait_for(Stream& stream, Lock& lock);
void wait_for(const Moment& moment, Lock& lock);

// In the calling thread's context.
Event* new_event();

std::int64_t now();  // ns, of a clock that only grows

}  // namespace pipewright::tests::made_up_cuda
