// run: of a scenario.
#include <algorithm>

#include "io/yaml/sections.hpp"

namespace pipewright::io {
namespace {

struct StepCount {
  const char* operator()(std::int64_t value) const {
    return value <= 1'000'000 ? "" : "is more than 1000000; write a smaller number";
  }
};
struct Decays {
  const char* operator()(const std::vector<double>& values) const {
    if (values.size() != 2) return "needs two numbers, e.g. [0.9, 0.999]";
    for (const double value : values)
      if (const char* broken = Below1{}(value); *broken) return broken;
    return "";
  }
};

struct AtMostAMillion {
  const char* operator()(double seconds) const {
    if (!(seconds > 0)) return "must be more than 0";
    return seconds > 1e6 ? "must be at most 1000000" : "";
  }
};

// Each GPU once.
void read_gpus(Reader& reader, const At& at, RunRequest& run) {
  if (!read_value(reader, at, run.gpus)) return;
  if (run.gpus.empty()) reader.error(at, "names no GPU; write e.g. [0]");
  for (std::size_t i = 0; i < run.gpus.size(); ++i) {
    const At here = at.entry(i);
    if (run.gpus[i] < 0 || run.gpus[i] > 1023)
      reader.error(here, "is not a number of a GPU; `pipewright doctor` lists them");
    if (std::count(run.gpus.begin(), run.gpus.begin() + static_cast<std::ptrdiff_t>(i), run.gpus[i]) > 0)
      reader.error(here, "stands in the list already");
  }
}

constexpr Field<RunRequest> kRun[] = {
    {"backend", "cpu | cuda", "whose arithmetic; cuda: a GPU's, every worker on SMs of its own; default: cpu",
     member<&RunRequest::backend>},
    {"virtual_devices", "whole number >= 1",
     "cuda: groups of SMs that the GPUs are cut into, one per worker; default: as many as there are workers",
     member<&RunRequest::virtual_devices, AtLeast1>},
    {"gpus", "list of numbers, e.g. [0, 1]",
     "cuda: workers are spread over these GPUs, as `pipewright doctor` numbers them; as many as workers: a whole one "
     "each; default: [0]",
     read_gpus, write_as<&RunRequest::gpus>},
    {"transport", "local | throttled | staged | peer | tcp | mpi | nccl",
     "local: workers are threads of one process; throttled: likewise, with links as slow as the cluster's; staged: "
     "likewise, messages go through the host's memory; peer: likewise, from one GPU into another; tcp, mpi: a process "
     "per worker; nccl: a process per worker and GPU, messages and sums by NCCL; default: local",
     member<&RunRequest::transport>},
    {"steps", "whole number >= 1", "steps that are timed; default: 20", member<&RunRequest::steps, AtLeast1>},
    {"warmup", "whole number >= 0", "steps before them; default: 3", member<&RunRequest::warmup, StepCount>},
    {"seed", "whole number >= 0", "of weights and data; default: 1", member<&RunRequest::seed, StepCount>},
    {"data", "synthetic | path",
     "what is learned: made up, a text (its bytes are tokens), or images in IDX with their labels in a second file; "
     "default: synthetic",
     member<&RunRequest::data>},
    {"loss", "cross_entropy", "what the last layer computes; default: cross_entropy", member<&RunRequest::loss>},
    {"learning_rate", "number > 0", "of the optimizer; default: 0.1", member<&RunRequest::learning_rate, Positive>},
    {"momentum", "number", "of optimizer momentum; default: 0.9", member<&RunRequest::momentum, Below1>},
    {"betas", "list of two numbers", "decay of adam's two moments; rmsprop uses the second; default: [0.9, 0.999]",
     member<&RunRequest::betas, Decays>},
    {"epsilon", "number > 0", "of rmsprop and adam; default: 1e-08", member<&RunRequest::epsilon, Positive>},
    {"memory_cap", "size", "that a worker's arena may span; default: none",
     member<&RunRequest::memory_cap, DeviceRate>},
    {"kernels", "own | library",
     "cuda: whose products of linear layers; own: the same bits on any number of SMs; library: cuBLASLt; default: "
     "library where it is there",
     member<&RunRequest::kernels>},
    {"loss_scale", "number > 0",
     "what the loss is multiplied by and its gradients are divided by before the update, so that small ones are not "
     "lost in 16 bits; a power of two changes no other bit; default: 1024 where training.precision is fp16, else 1",
     member<&RunRequest::loss_scale, Positive>},
    {"weight_stashing", "true | false",
     "asynchronous schedules: a backward reads the weights that its forward read; default: true",
     member<&RunRequest::weight_stashing>},
    {"timeout", "number > 0", "seconds until a silent worker ends the run, a million at most; default: 120",
     member<&RunRequest::timeout, AtMostAMillion>},
    {"synthetic", "true | false",
     "no arithmetic: every op spins for its stated time, allocates and sends its stated bytes; default: false",
     member<&RunRequest::synthetic>},
};

}  // namespace

void read_run_section(Reader& reader, const At& at, RunRequest& run) {
  run.place = at.yaml.place;
  read_fields<RunRequest>(reader, at, kRun, run);
}

void write_run_section(YamlText& out, const RunRequest& run) {
  write_fields<RunRequest>(out, kRun, run);
}

std::vector<SectionDoc> run_docs() {
  return {document<RunRequest>("run", kRun)};
}

}  // namespace pipewright::io
