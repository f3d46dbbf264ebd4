// A build without kernels for GPUs.
#include "calibrate/gpu_under_test.hpp"
#include "kernels/gpu_api.hpp"

namespace pipewright::calibrate {

std::unique_ptr<DeviceUnderTest> gpu_under_test(int, const std::string&, const std::string&) {
  throw GpuError(gpu_status());
}

}  // namespace pipewright::calibrate
