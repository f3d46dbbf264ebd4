// Work of a stream that is recorded once and then launched as a whole, as often as it is wanted (a CUDA graph): the
// host launches one thing instead of many. A stream of a virtual device keeps its SMs when what was recorded on it is
// launched.
//
// Tests: tests/kernels/gpu_test.cpp (needs a GPU)
#pragma once

#include <functional>
#include <utility>

#include "kernels/gpu_api.hpp"

namespace pipewright::kernels {

class GpuGraph {
 public:
  GpuGraph() = default;
  // What `work` puts into the stream, none of which runs now; nothing of it may wait for the host. Kernels have run
  // once before: loading one is no work of a stream.
  GpuGraph(GpuStream stream, const std::function<void()>& work);
  ~GpuGraph();
  GpuGraph(GpuGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  GpuGraph& operator=(GpuGraph&& other) noexcept { return std::swap(graph_, other.graph_), *this; }

  void launch(GpuStream stream) const;

 private:
  void* graph_ = nullptr;
};

}  // namespace pipewright::kernels
