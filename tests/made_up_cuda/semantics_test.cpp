// What the made-up CUDA says of right and wrong calls: it is worth what it refuses. Each case has a CUDA that is new.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "calibrate/gpu_under_test.hpp"
#include "kernels/gpu_api.hpp"
#include "kernels/gpu_graph.hpp"
#include "kernels/probes.hpp"
#include "tests/made_up_cuda/made_up_cuda.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::made_up_cuda;

namespace {

constexpr Time kLong{500'000'000};  // beyond what a busy machine may keep a test waiting between two calls

// Leaves what it found, so that a case that expects misuse does not spoil the next.
struct Fresh {
  explicit Fresh(int gpus = 1) {
    cuda().machine = {};
    cuda().machine.gpus = gpus, cuda().machine.driver = CUDART_VERSION;
    gpu_use(0);
  }
  ~Fresh() {
    for (cudaError_t& broken : cuda().broken)
      broken = cudaSuccess;
    static_cast<void>(cudaGetLastError());
    cuda().ledger.forgive();
  }
};

struct OwnStream {
  OwnStream() { REQUIRE(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking) == cudaSuccess); }
  ~OwnStream() { static_cast<void>(cudaStreamDestroy(handle)); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  cudaStream_t handle = nullptr;
};
struct OwnEvent {
  OwnEvent() { REQUIRE(cudaEventCreate(&handle) == cudaSuccess); }
  ~OwnEvent() { static_cast<void>(cudaEventDestroy(handle)); }
  OwnEvent(const OwnEvent&) = delete;
  OwnEvent& operator=(const OwnEvent&) = delete;
  cudaEvent_t handle = nullptr;
};

// And nothing of it is left to be blamed on the next launch.
cudaError_t answer(cudaError_t error) {
  static_cast<void>(cudaGetLastError());
  return error;
}

float elapsed_ms(cudaEvent_t from, cudaEvent_t to) {
  float ms = 0;
  CHECK(cudaEventElapsedTime(&ms, from, to) == cudaSuccess);
  return ms;
}

std::string noted() {
  std::string all;
  for (const std::string& line : cuda().ledger.misuse())
    all += line + '\n';
  return all;
}
bool notes(const std::string& part) {
  return noted().find(part) != std::string::npos;
}

std::string reported(const std::string& line) {
  const std::string all = cuda().ledger.report();
  const std::size_t at = all.find(line + ' ');
  return at == std::string::npos ? "" : all.substr(at + line.size() + 1, all.find('\n', at) - at - line.size() - 1);
}

}  // namespace

TEST_CASE("made-up CUDA: an event behind work has not passed, and has no time yet") {
  const Fresh fresh;
  const OwnStream stream;
  const OwnEvent begin, end;
  CHECK(cudaEventQuery(begin.handle) == cudaSuccess);  // as of one that was never recorded
  float ms = 0;
  CHECK(answer(cudaEventElapsedTime(&ms, begin.handle, end.handle)) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(begin.handle, stream.handle) == cudaSuccess);
  launch_delay(stream.handle, kLong);
  CHECK(cudaEventRecord(end.handle, stream.handle) == cudaSuccess);
  CHECK(answer(cudaEventQuery(end.handle)) == cudaErrorNotReady);
  CHECK(answer(cudaEventElapsedTime(&ms, begin.handle, end.handle)) == cudaErrorNotReady);
  CHECK(cudaEventSynchronize(end.handle) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&ms, begin.handle, end.handle) == cudaSuccess);
  CHECK(ms >= 500);
  CHECK(noted() == "");
}

TEST_CASE("made-up CUDA: a stream that waits for an event goes on behind it, and begins at once where there was none") {
  const Fresh fresh;
  const OwnStream slow, waiting;
  const OwnEvent begin, done, after, never;
  CHECK(cudaStreamWaitEvent(waiting.handle, never.handle, 0) == cudaSuccess);
  CHECK(cudaEventRecord(begin.handle, waiting.handle) == cudaSuccess);
  launch_delay(slow.handle, kLong);
  CHECK(cudaEventRecord(done.handle, slow.handle) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(waiting.handle, done.handle, 0) == cudaSuccess);
  CHECK(cudaEventRecord(done.handle, slow.handle) == cudaSuccess);  // a later record changes nothing
  CHECK(cudaEventRecord(after.handle, waiting.handle) == cudaSuccess);
  CHECK(cudaEventQuery(begin.handle) == cudaSuccess);
  CHECK(answer(cudaEventQuery(after.handle)) == cudaErrorNotReady);
  CHECK(cudaStreamSynchronize(waiting.handle) == cudaSuccess);
  float ms = 0;
  CHECK(cudaEventElapsedTime(&ms, begin.handle, after.handle) == cudaSuccess);
  CHECK(ms >= 500);
}

TEST_CASE("made-up CUDA: copies beyond a block, of freed blocks and of the host's memory are refused and noted") {
  const Fresh fresh;
  const OwnStream stream;
  const GpuMemory a(0, {1000}), b(0, {1000});
  CHECK_THROWS_WITH_AS(gpu_copy(stream.handle, a.data(), b.data(), {1001}, GpuCopy::DeviceToDevice),
                       doctest::Contains("cudaErrorInvalidValue"), GpuError);
  CHECK(notes("cudaMemcpyAsync of 1001 bytes at"));
  CHECK(notes("from byte 0 of a block of 1000"));
  void* gone = nullptr;
  {
    const GpuMemory c(0, {1000});
    gone = c.data();
  }
  CHECK_THROWS_AS(gpu_copy(stream.handle, a.data(), gone, {8}, GpuCopy::DeviceToDevice), GpuError);
  CHECK(notes("of a block that was freed"));
  char here[8] = {};
  CHECK_THROWS_AS(gpu_zero(stream.handle, here, {8}), GpuError);
  CHECK(notes("cudaMemsetAsync of 8 bytes at"));
  CHECK(notes("not in the memory of a GPU"));
}

TEST_CASE("made-up CUDA: what is freed, destroyed or used after that is noted") {
  const Fresh fresh;
  void* block = nullptr;
  CHECK(cudaMalloc(&block, 100) == cudaSuccess);
  CHECK(cudaFree(block) == cudaSuccess);
  CHECK(answer(cudaFree(block)) == cudaErrorInvalidValue);
  CHECK(notes("which was freed before"));
  int here = 0;
  CHECK(answer(cudaFreeHost(&here)) == cudaErrorInvalidValue);
  CHECK(notes("which is not a block of its own"));
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(cudaEventCreate(&event) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  CHECK(answer(cudaEventRecord(event, stream)) == cudaErrorInvalidResourceHandle);
  CHECK(notes("cudaEventRecord on a stream that is none, or is gone"));
  CHECK(cudaEventDestroy(event) == cudaSuccess);
  CHECK(answer(cudaEventSynchronize(event)) == cudaErrorInvalidResourceHandle);
  CHECK(notes("cudaEventSynchronize of an event that is none, or is gone"));
  CHECK(answer(cudaStreamDestroy(stream)) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("made-up CUDA: launches and events are refused on a stream of another GPU") {
  const Fresh fresh(2);
  const OwnStream first;
  gpu_use(1);
  const OwnEvent second;
  CHECK_THROWS_WITH_AS(launch_empty(first.handle), doctest::Contains("cudaErrorInvalidResourceHandle"), GpuError);
  CHECK(answer(cudaEventRecord(second.handle, first.handle)) == cudaErrorInvalidResourceHandle);
  const GpuMemory there(1, {8}), here(0, {8});
  CHECK_THROWS_AS(gpu_copy_between(first.handle, there.data(), 0, here.data(), 1, {8}), GpuError);
  CHECK(notes("an address of another GPU than it is told"));
  gpu_copy_between(first.handle, there.data(), 1, here.data(), 0, {8});
  gpu_finish(first.handle);
}

TEST_CASE("made-up CUDA: memory ends, and what is free is told to the byte") {
  const Fresh fresh;
  cuda().machine.memory = kContextBytes + 4096;
  const Bytes all = gpu_free_memory(0);
  CHECK(all == Bytes{4096});
  {
    const GpuMemory block(0, {3000});
    CHECK(gpu_free_memory(0) == Bytes{4096 - 3072});
    CHECK_THROWS_WITH_AS(GpuMemory(0, {2000}), doctest::Contains("cudaErrorMemoryAllocation"), GpuError);
  }
  CHECK(gpu_free_memory(0) == all);
}

TEST_CASE("made-up CUDA: a recording takes launches, runs them when it is launched, and no memory may be asked for") {
  const Fresh fresh;
  const OwnStream stream;
  const OwnEvent begin, end;
  {
    const GpuGraph graph(stream.handle, [&] {
      launch_delay(stream.handle, kLong);
      CHECK_THROWS_WITH_AS(GpuMemory(0, {8}), doctest::Contains("cudaErrorStreamCaptureUnsupported"), GpuError);
    });
    CHECK(cudaEventRecord(begin.handle, stream.handle) == cudaSuccess);
    CHECK(cudaEventQuery(begin.handle) == cudaSuccess);  // nothing of it has run
    graph.launch(stream.handle);
    CHECK(cudaEventRecord(end.handle, stream.handle) == cudaSuccess);
    CHECK(reported("left graphs") == "1");
    CHECK(cudaEventSynchronize(end.handle) == cudaSuccess);
  }
  CHECK(elapsed_ms(begin.handle, end.handle) >= 500);
  CHECK(reported("left graphs") == "0");
}

TEST_CASE("made-up CUDA: after a kernel that fails every call does, and what is given back counts") {
  const Fresh fresh;
  const OwnStream stream;
  const OwnEvent event;
  {
    const GpuMemory block(0, {100});
    cuda().machine.fail = {"kernel", std::stol("0" + reported("calls kernel")) + 2, cudaErrorIllegalAddress};
    launch_empty(stream.handle);
    gpu_finish(stream.handle);
    launch_empty(stream.handle);  // is taken
    CHECK_THROWS_WITH_AS(gpu_finish(stream.handle), doctest::Contains("cudaErrorIllegalAddress"), GpuError);
    CHECK(answer(cudaEventRecord(event.handle, stream.handle)) == cudaErrorIllegalAddress);
    CHECK_THROWS_AS(launch_empty(stream.handle), GpuError);
  }
  CHECK(reported("left device_bytes") == "0");
}

TEST_CASE("made-up CUDA: groups of SMs are disjoint, and gone before their streams is noted") {
  const Fresh fresh;
  {
    const VirtualDevices two(0, 2, 1);
    CHECK(two.sms(0) == 64);
    std::vector<std::uint32_t> seen[2];
    for (const int group : {0, 1}) {
      const GpuMemory ids(0, {256});
      launch_sm_probe(two.stream(group), 64, {1000}, static_cast<std::uint32_t*>(ids.data()));
      gpu_finish(two.stream(group));
      const auto* const first = static_cast<const std::uint32_t*>(ids.data());
      seen[group].assign(first, first + 64);
    }
    CHECK(seen[0].front() == 0);
    CHECK(seen[0].back() == 63);
    CHECK(seen[1].front() == 64);
    CHECK(reported("left contexts") == "2");
  }
  CHECK(reported("left contexts") == "0");
  CHECK(noted() == "");
}

TEST_CASE("made-up CUDA: where groups take events of their own context only, events are made there and go before it") {
  const Fresh fresh;
  cuda().machine.events = EventsTaken::Own;
  {
    std::optional<VirtualDevices> two(std::in_place, 0, 2, 1);
    const OwnEvent whole;
    CHECK(answer(cudaEventRecord(whole.handle, static_cast<cudaStream_t>(two->stream(0)))) ==
          cudaErrorInvalidResourceHandle);
    GpuEvent event(0);
    event.record(two->stream(0));
    event.wait();
    CHECK(event.moved());
    CHECK(noted() == "");
    two.reset();
  }
  CHECK(notes("cudaEventDestroy after the SM group of the event"));
}

TEST_CASE("made-up CUDA: pairs of groups are not timed where their events cannot be compared") {
  for (const auto& [events, refusal] :
       {std::pair(EventsTaken::Own, ""),
        std::pair(EventsTaken::Apart, "events are made in each group's own context; not comparable between groups")}) {
    const Fresh fresh;
    cuda().machine.events = events;
    const auto gpu = gpu_under_test(0, "2026-01-01", "test");
    DeviceMeasurement copy;
    copy.work = DeviceWork::Copy, copy.operation = "copy", copy.size.rows = 1 << 16;
    copy.virtual_devices = 2;
    DeviceMeasurement pair = copy;
    pair.busy = 2, pair.beside = std::make_shared<const DeviceMeasurement>(copy);
    CHECK(gpu->refusal(copy) == "");
    CHECK(gpu->refusal(pair) == refusal);
    CHECK(gpu->stopwatch(copy, false)->time().ns > 0);
    if (events == EventsTaken::Own) CHECK(gpu->stopwatch(pair, false)->time().ns > 0);
    pair.virtual_devices = 1;
    CHECK(gpu->refusal(pair) == "");  // two streams of one context
  }
  CHECK(noted() == "");
  CHECK(reported("left events") == "0");
}

TEST_CASE("made-up CUDA: a call fails when its turn comes, once") {
  const Fresh fresh;
  cuda().machine.fail = {"cudaMallocHost", std::stol("0" + reported("calls cudaMallocHost")) + 2,
                         cudaErrorMemoryAllocation};
  const GpuMemory first(0, {8}, GpuMemoryKind::PinnedHost);
  CHECK_THROWS_AS(GpuMemory(0, {8}, GpuMemoryKind::PinnedHost), GpuError);
  const GpuMemory third(0, {8}, GpuMemoryKind::PinnedHost);
  CHECK(reported("left pinned_blocks") == "2");
}
