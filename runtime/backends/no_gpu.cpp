// A build without kernels for GPUs.
#include "core/check.hpp"
#include "runtime/backends/gpu.hpp"

namespace pipewright::runtime {

std::unique_ptr<Backend> gpu_backend(const std::shared_ptr<VirtualDevices>&, int, DeviceFacts, const GpuArithmetic&) {
  throw InputError("backend cuda: " + gpu_status());
}

std::unique_ptr<NcclQueue> gpu_nccl_queue(Mover&, NcclPlace) {
  throw InputError("backend cuda: " + gpu_status());
}

}  // namespace pipewright::runtime
