// Nsight Systems: its SQLite export (nsys_sqlite.hpp), or comma-separated values that `nsys stats --format csv` writes
// (columns as of 2023 to 2026), which do not change with every version:
//
//   nvtx_gpu_proj_trace   Name,Projected Start (ns),Projected Duration (ns),...,PID,...     times of the device
//   nvtx_pushpop_trace    Start (ns),End (ns),Duration (ns),...,Name,PID,...                times of the host
//   cuda_gpu_kern_sum     Time (%),Total Time (ns),Instances,...,Name                       sums of kernels
//
// Ranges named "PP:0F3" (in any NVTX domain) are actions of a pipeline. Lines in front of the header, where nsys tells
// what it does, are passed over.
#pragma once

#include <string>

#include "io/import/run_file.hpp"

namespace pipewright {

// A run with a trace or with kernels, as the file has them. Throws InputError naming file, line and column: no known
// header, an action without times, a number that is none, a quote that never ends.
ImportedRun import_nsys(const std::string& path);

}  // namespace pipewright
