#include "kernels/gpu_graph.hpp"

#include "kernels/cuda_calls.hpp"

namespace pipewright::kernels {

GpuGraph::GpuGraph(GpuStream stream, const std::function<void()>& work) {
  check(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t recorded = nullptr;
  try {
    work();
  } catch (...) {  // a stream that still records would take nothing else
    if (cudaStreamEndCapture(stream_of(stream), &recorded) == cudaSuccess && recorded != nullptr)
      static_cast<void>(cudaGraphDestroy(recorded));
    static_cast<void>(cudaGetLastError());
    throw;
  }
  check(cudaStreamEndCapture(stream_of(stream), &recorded), "cudaStreamEndCapture");
  cudaGraphExec_t graph = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&graph, recorded, 0);
  static_cast<void>(cudaGraphDestroy(recorded));
  check(made, "cudaGraphInstantiate");
  graph_ = graph;
}

GpuGraph::~GpuGraph() {
  if (graph_ != nullptr) let_go(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_)));
}

void GpuGraph::launch(GpuStream stream) const {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), stream_of(stream)), "cudaGraphLaunch");
}

}  // namespace pipewright::kernels
