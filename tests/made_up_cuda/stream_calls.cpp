// Streams, events and graphs.
#include "tests/made_up_cuda/made_up_cuda.hpp"

using namespace pipewright::tests::made_up_cuda;

namespace {

struct Graph {
  std::vector<Item> items;
};

cudaError_t new_stream(cudaStream_t* handle) {
  Stream* const stream = cuda().streams.add();
  stream->device = this_thread().device;
  stream->sms = {{0, cuda().machine.sms}};
  *handle = reinterpret_cast<cudaStream_t>(stream);
  return cuda().ledger.made(Kind::Stream, stream), cudaSuccess;
}

// nullptr, and noted, where it is none.
Event* event_of(const char* name, cudaEvent_t handle) {
  if (cuda().ledger.lives(Kind::Event, handle)) return reinterpret_cast<Event*>(handle);
  cuda().ledger.note(std::string(name) + " of an event that is none, or is gone");
  return nullptr;
}

template <class Handle>
cudaError_t new_graph(Handle* handle, std::vector<Item> items) {
  auto* const graph = new Graph{std::move(items)};
  *handle = reinterpret_cast<Handle>(graph);
  return cuda().ledger.made(Kind::Graph, graph), cudaSuccess;
}

template <class Handle>
cudaError_t drop_graph(const char* name, Handle handle) {
  return closing_call(name, [&](Lock&) {
    if (!cuda().ledger.destroyed(name, Kind::Graph, handle)) return cudaErrorInvalidValue;
    delete reinterpret_cast<Graph*>(handle);
    return cudaSuccess;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned) {
  return call("cudaStreamCreateWithFlags", [&](Lock&) { return new_stream(handle); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned, int) {
  return call("cudaStreamCreateWithPriority", [&](Lock&) { return new_stream(handle); });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  constexpr const char* kName = "cudaStreamDestroy";
  return closing_call(kName, [&](Lock&) {
    Ledger& ledger = cuda().ledger;
    if (!ledger.destroyed(kName, Kind::Stream, handle)) return cudaErrorInvalidResourceHandle;
    auto* const stream = reinterpret_cast<Stream*>(handle);
    if (stream->context != nullptr && !ledger.lives(Kind::Context, stream->context))
      ledger.note("cudaStreamDestroy after the SM group of the stream");
    return cuda().streams.drop(stream), cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  constexpr const char* kName = "cudaStreamSynchronize";
  return call(kName, [&](Lock& lock) {
    Stream* const stream = stream_of(kName, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->recording) return cudaErrorStreamCaptureUnsupported;
    return wait_for(*stream, lock), cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  constexpr const char* kName = "cudaStreamWaitEvent";
  return call(kName, [&](Lock&) {
    Stream* const stream = stream_of(kName, handle);
    const Event* const from = event_of(kName, event);
    if (stream == nullptr || from == nullptr) return cudaErrorInvalidResourceHandle;
    Item item;
    item.awaited = from->moment;
    if (item.awaited != nullptr) ask(*stream, std::move(item));  // an event that was never recorded holds nobody up
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* handle) {
  return call("cudaEventCreate",
              [&](Lock&) { return *handle = reinterpret_cast<cudaEvent_t>(new_event()), cudaSuccess; });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  constexpr const char* kName = "cudaEventDestroy";
  return closing_call(kName, [&](Lock&) {
    if (!cuda().ledger.destroyed(kName, Kind::Event, handle)) return cudaErrorInvalidResourceHandle;
    const std::unique_ptr<const Event> event(reinterpret_cast<const Event*>(handle));
    if (event->context != nullptr && !cuda().ledger.lives(Kind::Context, event->context))
      cuda().ledger.note("cudaEventDestroy after the SM group of the event");
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t on) {
  constexpr const char* kName = "cudaEventRecord";
  return call(kName, [&](Lock&) {
    Stream* const stream = stream_of(kName, on);
    Event* const event = event_of(kName, handle);
    if (stream == nullptr || event == nullptr) return cudaErrorInvalidResourceHandle;
    if (event->device != stream->device) return cudaErrorInvalidResourceHandle;
    if (cuda().machine.events != EventsTaken::OfGpu && event->context != stream->context)
      return cudaErrorInvalidResourceHandle;
    Item item;
    item.reached = event->moment = std::make_shared<Moment>();
    return ask(*stream, std::move(item)), cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  constexpr const char* kName = "cudaEventSynchronize";
  return call(kName, [&](Lock& lock) {
    const Event* const event = event_of(kName, handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    const std::shared_ptr<Moment> moment = event->moment;
    if (moment != nullptr) wait_for(*moment, lock);
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  constexpr const char* kName = "cudaEventQuery";
  return call(kName, [&](Lock&) {
    const Event* const event = event_of(kName, handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    cuda().streams.go_on(now());
    return event->moment == nullptr || event->moment->passed ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  constexpr const char* kName = "cudaEventElapsedTime";
  return call(kName, [&](Lock&) {
    const Event *const begin = event_of(kName, from), *const end = event_of(kName, to);
    if (begin == nullptr || end == nullptr || begin->moment == nullptr || end->moment == nullptr)
      return cudaErrorInvalidResourceHandle;
    if (begin->device != end->device) return cudaErrorInvalidResourceHandle;
    if (cuda().machine.events == EventsTaken::Apart && begin->context != end->context)
      return cudaErrorInvalidResourceHandle;
    if (!begin->moment->passed || !end->moment->passed) return cudaErrorNotReady;
    *milliseconds = static_cast<float>(static_cast<double>(end->moment->at - begin->moment->at) * 1e-6);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  constexpr const char* kName = "cudaStreamBeginCapture";
  return call(kName, [&](Lock&) {
    Stream* const stream = stream_of(kName, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (handle == nullptr || stream->recording) return cudaErrorStreamCaptureUnsupported;
    stream->recording = true, stream->recorded.clear();
    this_thread().recording = stream;
    return cudaSuccess;
  });
}

// A recording that has begun ends, whatever has happened to the GPU.
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  constexpr const char* kName = "cudaStreamEndCapture";
  return closing_call(kName, [&](Lock&) {
    Stream* const stream = stream_of(kName, handle);
    *graph = nullptr;
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (!stream->recording) return cudaErrorInvalidValue;
    stream->recording = false, this_thread().recording = nullptr;
    return new_graph(graph, std::move(stream->recorded));
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* handle, cudaGraph_t graph, unsigned long long) {
  constexpr const char* kName = "cudaGraphInstantiate";
  return call(kName, [&](Lock&) {
    if (!cuda().ledger.lives(Kind::Graph, graph)) return cudaErrorInvalidValue;
    return new_graph(handle, reinterpret_cast<Graph*>(graph)->items);
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return drop_graph("cudaGraphDestroy", graph);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return drop_graph("cudaGraphExecDestroy", graph);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t handle) {
  constexpr const char* kName = "cudaGraphLaunch";
  return call(kName, [&](Lock&) {
    Stream* const stream = stream_of(kName, handle);
    if (stream == nullptr || !cuda().ledger.lives(Kind::Graph, graph)) return cudaErrorInvalidResourceHandle;
    for (const Item& item : reinterpret_cast<Graph*>(graph)->items)
      ask(*stream, item);
    return cudaSuccess;
  });
}

}  // extern "C"
