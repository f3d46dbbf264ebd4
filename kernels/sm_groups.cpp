#include "kernels/sm_groups.hpp"

#include <cstddef>

#include "kernels/sm_choice.hpp"

namespace pipewright::kernels {
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

int architecture_of(int device) {
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  return major;
}

struct Split {
  CUresult result = CUDA_SUCCESS;
  std::vector<CUdevResource> groups;
};
Split split(const GreenContextCalls& calls, const CUdevResource& all, const SmCall& call) {
  unsigned count = call.groups;
  Split out;
  out.groups.resize(count);
  CUdevResource left_over{};
  out.result = calls.split(out.groups.data(), &count, &all, &left_over,
                           call.loose ? CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING : 0, call.each);
  out.groups.resize(out.result == CUDA_SUCCESS ? count : 0);
  return out;
}

std::string told(const SmChoice& choice, unsigned each) {
  if (choice.call.loose) return "SMs that need not lie together, so without large clusters of blocks";
  if (choice.together == 1) return "";
  return "each put together of " + std::to_string(choice.together) + " groups of " + std::to_string(each);
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
  const SmDevice facts{out.all.sm.smCount, out.all.sm.minSmPartitionSize, out.all.sm.smCoscheduledAlignment,
                       architecture_of(device)};
  out.least = static_cast<int>(least_group(facts)), out.step = static_cast<int>(group_step(facts));
  const SmChoice choice = chosen_groups(facts, static_cast<unsigned>(asked), [&](const SmCall& call) {
    const Split given = split(calls, out.all, call);
    return SmAnswer{static_cast<unsigned>(given.groups.size()),
                    given.groups.empty() ? 0 : given.groups.front().sm.smCount};
  });
  const Split given = split(calls, out.all, choice.call);
  check(calls, given.result,
        "cuDevSmResourceSplitByCount into " + std::to_string(choice.call.groups) + " groups of " +
            std::to_string(choice.call.each) + " SMs");
  if (given.groups.empty()) return out;
  const unsigned each = given.groups.front().sm.smCount;
  out.sms = static_cast<int>(each * choice.together);
  out.how = told(choice, each);
  for (std::size_t first = 0; first + choice.together <= given.groups.size() && std::ssize(out.groups) < asked;
       first += choice.together)
    out.groups.emplace_back(given.groups.begin() + static_cast<std::ptrdiff_t>(first),
                            given.groups.begin() + static_cast<std::ptrdiff_t>(first + choice.together));
  return out;
}

}  // namespace pipewright::kernels
