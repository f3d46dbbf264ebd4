// Which GPU, and which group of its SMs, each worker of a run has. Facts in, places out: no GPU is touched.
//
// Workers are spread evenly, in their order: of 4 workers on GPUs 0 and 1 the first two have half of GPU 0 each. As
// many GPUs as workers: a whole one each. More virtual devices than workers (run.virtual_devices): the last do nothing,
// so that a few workers have devices as small as those of many.               tests/cli/gpu_places_test.cpp
#pragma once

#include <vector>

#include "core/question/run_request.hpp"
#include "kernels/gpu_api.hpp"

namespace pipewright::runtime {

struct GpuPlaces {
  std::vector<int> gpus;  // worker w is on gpus[w / groups], in group w mod groups
  int groups = 1;         // of each GPU; 1: all of it
};

// What the block `run:` says of GPUs fits the backend and the number of workers. Throws InputError.
void check_gpu_keys(const RunRequest& run, int workers);

// Workers as threads of one process. Throws InputError: no GPU, one that is not there or cannot run this build's
// kernels, workers that cannot be spread evenly, more groups of SMs than the GPU gives: then what it gives.
GpuPlaces gpu_places(const RunRequest& run, int workers, const GpuSystem& system);

// The GPU of this process, the `local`th on its machine: a whole one. Processes that share a GPU would take turns.
GpuPlaces gpu_of_process(const RunRequest& run, int workers, int local, const GpuSystem& system);

// Whether this process can see no more than one GPU, without asking CUDA: by CUDA_VISIBLE_DEVICES (`visible`, null:
// unset), else by the nodes nvidia0, nvidia1, ... in the folder /dev. No node: not known, so no.
bool one_gpu_at_most(const std::string& folder, const char* visible);

}  // namespace pipewright::runtime
