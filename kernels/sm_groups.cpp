#include "kernels/sm_groups.hpp"

namespace pipewright {
namespace {

template <class Function>
Function needed(const char* name, unsigned version) {
  const auto function = driver_function<Function>(name, version);
  if (function == nullptr)
    throw GpuError(std::string("the driver has no ") + name + ": SM groups need a driver for CUDA 12.5 or later");
  return function;
}

GreenContextCalls found_calls() {
  return {needed<PFN_cuDeviceGetDevResource_v12040>("cuDeviceGetDevResource", 12040),
          needed<PFN_cuDevSmResourceSplitByCount_v12040>("cuDevSmResourceSplitByCount", 12040),
          needed<PFN_cuDevResourceGenerateDesc_v12040>("cuDevResourceGenerateDesc", 12040),
          needed<PFN_cuGreenCtxCreate_v12040>("cuGreenCtxCreate", 12040),
          needed<PFN_cuGreenCtxDestroy_v12040>("cuGreenCtxDestroy", 12040),
          needed<PFN_cuGreenCtxGetDevResource_v12040>("cuGreenCtxGetDevResource", 12040),
          needed<PFN_cuGreenCtxStreamCreate_v12050>("cuGreenCtxStreamCreate", 12050),
          needed<PFN_cuGetErrorString_v6000>("cuGetErrorString", 6000)};
}

}  // namespace

const GreenContextCalls& green_context_calls() {
  static const GreenContextCalls calls = found_calls();
  return calls;
}

void check(const GreenContextCalls& calls, CUresult result, const std::string& call) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  if (calls.error_string(result, &text) != CUDA_SUCCESS || text == nullptr) text = "an error without a name";
  throw GpuError(call + ": " + text + " (CUresult " + std::to_string(static_cast<int>(result)) + ")");
}

SmGroups split_sms(int device, int asked) {
  const GreenContextCalls& calls = green_context_calls();
  SmGroups out;
  // A device number of the runtime is one of the driver.
  check(calls, calls.resource_of_device(device, &out.all, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource");
  const unsigned sms = out.all.sm.smCount, least = out.all.sm.minSmPartitionSize;
  const unsigned step = out.all.sm.smCoscheduledAlignment > 0 ? out.all.sm.smCoscheduledAlignment : 1;
  unsigned each = sms / static_cast<unsigned>(asked) / step * step;
  if (each < least) each = least;
  unsigned count = static_cast<unsigned>(asked);
  out.groups.resize(count);
  check(calls, calls.split(out.groups.data(), &count, &out.all, &out.left_over, 0, each),
        "cuDevSmResourceSplitByCount into " + std::to_string(asked) + " groups of " + std::to_string(each) + " SMs");
  out.groups.resize(count);
  return out;
}

}  // namespace pipewright
