// run: of a scenario.
#include "io/read_scenario.hpp"
#include "io/sections.hpp"

namespace pipewright {
namespace {

struct StepCount {
  const char* operator()(std::int64_t value) const {
    if (value < 0) return "must be 0 or more";
    return value > 1'000'000 ? "is more than 1000000; write a smaller number" : "";
  }
};
struct Positive {
  const char* operator()(double value) const { return value > 0 ? "" : "must be more than 0"; }
};
struct Decay {
  const char* operator()(double value) const {
    return value >= 0 && value < 1 ? "" : "must be at least 0, less than 1";
  }
};
struct Decays {
  const char* operator()(const std::vector<double>& values) const {
    if (values.size() != 2) return "needs two numbers, e.g. [0.9, 0.999]";
    for (const double value : values)
      if (const char* broken = Decay{}(value); *broken) return broken;
    return "";
  }
};

struct AtMostAMillion {
  const char* operator()(double seconds) const {
    if (!(seconds > 0)) return "must be more than 0";
    return seconds > 1e6 ? "must be at most 1000000" : "";
  }
};

constexpr Field<RunRequest> kRun[] = {
    {"backend", "cpu", "whose arithmetic; default: cpu", Need::Optional, read_as<&RunRequest::backend>,
     write_as<&RunRequest::backend>},
    {"transport", "local | throttled | tcp | mpi",
     "local: workers are threads of one process; throttled: likewise, with links as slow as the cluster's; tcp, mpi: a "
     "process per worker; default: local",
     Need::Optional, read_as<&RunRequest::transport>, write_as<&RunRequest::transport>},
    {"steps", "whole number >= 1", "steps that are timed; default: 20", Need::Optional,
     read_as<&RunRequest::steps, AtLeast1>, write_as<&RunRequest::steps>},
    {"warmup", "whole number >= 0", "steps before them; default: 3", Need::Optional,
     read_as<&RunRequest::warmup, StepCount>, write_as<&RunRequest::warmup>},
    {"seed", "whole number >= 0", "of weights and data; default: 1", Need::Optional,
     read_as<&RunRequest::seed, StepCount>, write_as<&RunRequest::seed>},
    {"data", "synthetic | path",
     "what is learned: made up, a text (its bytes are tokens), or images in IDX with their labels beside; default: "
     "synthetic",
     Need::Optional, read_as<&RunRequest::data>, write_as<&RunRequest::data>},
    {"loss", "cross_entropy", "what the last layer computes; default: cross_entropy", Need::Optional,
     read_as<&RunRequest::loss>, write_as<&RunRequest::loss>},
    {"learning_rate", "number > 0", "of the optimizer; default: 0.1", Need::Optional,
     read_as<&RunRequest::learning_rate, Positive>, write_as<&RunRequest::learning_rate>},
    {"momentum", "number", "of optimizer momentum; default: 0.9", Need::Optional, read_as<&RunRequest::momentum, Decay>,
     write_as<&RunRequest::momentum>},
    {"betas", "list of two numbers", "decay of adam's two moments; rmsprop uses the second; default: [0.9, 0.999]",
     Need::Optional, read_as<&RunRequest::betas, Decays>, write_as<&RunRequest::betas>},
    {"epsilon", "number > 0", "of rmsprop and adam; default: 1e-08", Need::Optional,
     read_as<&RunRequest::epsilon, Positive>, write_as<&RunRequest::epsilon>},
    {"memory_cap", "size", "that a worker's arena may span; default: none", Need::Optional,
     read_as<&RunRequest::memory_cap, DeviceRate>, write_as<&RunRequest::memory_cap>},
    {"weight_stashing", "true | false",
     "asynchronous schedules: a backward reads the weights that its forward read; default: true", Need::Optional,
     read_as<&RunRequest::weight_stashing>, write_as<&RunRequest::weight_stashing>},
    {"timeout", "number > 0", "seconds until a silent worker ends the run, a million at most; default: 120",
     Need::Optional, read_as<&RunRequest::timeout, AtMostAMillion>, write_as<&RunRequest::timeout>},
};

}  // namespace

void read_run_section(Reader& reader, const At& at, RunRequest& run) {
  run.place = at.yaml.place;
  read_fields<RunRequest>(reader, at, kRun, run);
}

void write_run_section(YamlText& out, const RunRequest& run) {
  for (const Field<RunRequest>& field : kRun)
    field.write(out, field.key, run);
}

std::vector<SectionDoc> run_docs() {
  return {document<RunRequest>("run", kRun)};
}

}  // namespace pipewright
