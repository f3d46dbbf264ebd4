// Inside kernels/ only: SM groups by the driver's green contexts, CUDA 12.4 to 13.0 form of the calls.
//
// Which split is asked for: sm_choice.hpp.
#pragma once

#include <string>
#include <vector>

#include <cudaTypedefs.h>

#include "kernels/cuda_calls.hpp"

namespace pipewright::kernels {

struct GreenContextCalls {
  PFN_cuDeviceGetDevResource_v12040 resource_of_device;
  PFN_cuDevSmResourceSplitByCount_v12040 split;
  PFN_cuDevResourceGenerateDesc_v12040 describe;
  PFN_cuGreenCtxCreate_v12040 create;
  PFN_cuGreenCtxDestroy_v12040 destroy;
  PFN_cuGreenCtxGetDevResource_v12040 resource_of_context;
  PFN_cuGreenCtxStreamCreate_v12050 create_stream;
  PFN_cuGetErrorString_v6000 error_string;
};

// Throws GpuError when the driver is too old for one of them.
const GreenContextCalls& green_context_calls();

// Throws GpuError "cuGreenCtxCreate: ..." unless the result is a success.
void check(const GreenContextCalls& calls, CUresult result, const std::string& call);

struct SmGroups {
  CUdevResource all{};
  int least = 0, step = 0;                         // SMs
  std::vector<std::vector<CUdevResource>> groups;  // as many as the driver gives, each put together of these
  int sms = 0;                                     // of each
  std::string how;                                 // unless the driver gives them as asked for at once
  int left_over() const { return static_cast<int>(all.sm.smCount) - sms * static_cast<int>(groups.size()); }
};
// The SMs of a device cut into `asked` groups of equal size, as large as they can be.
SmGroups split_sms(int device, int asked);

}  // namespace pipewright::kernels
