// Machines that lack something: what the program says of them, and that it ends.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/made_up_cuda/made_up_run.hpp"

using namespace pipewright::tests;
using namespace pipewright::tests::made_up_cuda;

namespace {

struct Lacking {
  std::string settings;
  std::vector<std::string> options;  // of `run`
  int status;
  const char* run;     // says on standard error, or on standard output
  const char* doctor;  // says
};

const Lacking kMachines[] = {
    {"driver=0",
     {},
     2,
     "run.backend: cuda: no NVIDIA driver (libcuda.so.1) on this machine",
     "driver      none: no NVIDIA driver (libcuda.so.1) on this machine"},
    {"driver=12020",
     {},
     2,
     "run.backend: cuda: the driver knows CUDA 12.2, this build needs ",
     "the driver knows CUDA 12.2, this build needs "},
    {"gpus=0",
     {},
     2,
     "run.backend: cuda: a driver, but no GPU (or CUDA_VISIBLE_DEVICES hides it)",
     "a driver, but no GPU (or CUDA_VISIBLE_DEVICES hides it)"},
    {"architecture=50",
     {},
     2,
     "run.gpus: GPU 0: the kernels are built for architectures ",
     "not for this GPU: configure with -Dgpu_archs="},
    {"groups=1",
     {},
     2,
     "2 workers need 2 groups of SMs on GPU 0 (made-up GPU, 132 SMs), which gives 1 group of 64 SMs",
     "1 x 64 (2 asked for), 68 left over"},
    {"groups=0",
     {},
     2,
     "which gives none: cuDevSmResourceSplitByCount into 2 groups of 64 SMs: invalid resource",
     "SM groups none, so one virtual device only: cuDevSmResourceSplitByCount into 2 groups of 64 SMs"},
    {"sms=8",
     {},
     2,
     "2 workers need 2 groups of SMs on GPU 0 (made-up GPU, 8 SMs), which gives 1 group of 8 SMs",
     "1 x 8 (2 asked for); 1 x 8 (4 asked for)"},
    {"without=cuGreenCtxCreate",
     {},
     2,
     "the driver has no cuGreenCtxCreate: SM groups need a driver for CUDA 12.5 or later",
     "SM groups none, so one virtual device only: the driver has no cuGreenCtxCreate"},
    {"events=own without=cuEventCreate",
     {},
     2,
     "cudaEventRecord: invalid resource handle (cudaErrorInvalidResourceHandle)",
     "events in their streams: fail: cudaEventRecord: invalid resource handle"},
    {"memory=600MiB",
     {},
     1,
     "infeasible: worker 0: cudaMalloc of 28672 bytes on GPU 0: out of memory",
     "600 MiB, 0 B free"},
    {"gpus=2 peer=0",
     {"--transport", "peer", "--gpus", "0,1"},
     2,
     "run.transport: peer: GPU 0 does not reach the memory of GPU 1 directly; use local",
     "peers     GPU 0: by the host"},
    {"gpus=1",
     {"--gpus", "0,1"},
     2,
     "run.gpus: there is no GPU 1; this machine has 1, numbered from 0",
     "peers     no other GPU"},
    {"", {"--kernels", "library"}, 2, "run.kernels: library: cuBLASLt", "cuBLASLt    "},
};

}  // namespace

TEST_SUITE_BEGIN("machines");

TEST_CASE("made-up GPU: a machine that lacks something is told so, by run and by doctor") {
  for (const Lacking& machine : kMachines) {
    CAPTURE(machine.settings);
    std::vector<std::string> arguments = {"run", tiny()};
    arguments.insert(arguments.end(), machine.options.begin(), machine.options.end());
    const MadeUpRun run = made_up_run(machine.settings, arguments);
    CHECK(run.status == machine.status);
    CHECK_MESSAGE((run.out + run.err).find(machine.run) != std::string::npos, (run.out + run.err));
    CHECK(run.clean());
    const MadeUpRun doctor = made_up_run(machine.settings, {"doctor"});
    CHECK(doctor.status == 0);
    CHECK_MESSAGE(doctor.out.find(machine.doctor) != std::string::npos, doctor.out);
    CHECK(doctor.clean());
  }
}

// Copies of a batch, and pipelines in opposite directions.
TEST_CASE("made-up GPU: gradients are not summed over GPUs that do not reach one another's memory") {
  for (const std::vector<std::string>& sums :
       {std::vector<std::string>{"plan.stages=1", "plan.data_parallel=2"}, {"plan.schedule=chimera"}}) {
    CAPTURE(sums.back());
    std::vector<std::string> arguments = {"run", tiny(), "--gpus", "0,1"};
    for (const std::string& change : sums)
      arguments.insert(arguments.end(), {"--set", change});
    const MadeUpRun run = made_up_run("gpus=2 peer=0", arguments);
    CHECK(run.status == 2);
    CHECK_MESSAGE(run.err.find("run.transport: gradients are summed over GPU 0 and GPU 1, which cannot read each "
                               "other's memory; use transport staged") != std::string::npos,
                  run.err);
    CHECK(run.clean());
  }
}

TEST_CASE("made-up GPU: a GPU with room for one worker's arena runs one") {
  // 600 MiB of the contexts; an arena of one worker and the block of its probe take 1.1 MiB.
  const MadeUpRun one = made_up_run("memory=602MiB", {"run", tiny(), "--set", "plan.stages=1"});
  CHECK_MESSAGE(one.status == 0, one.err);
  CHECK(one.clean());
}

TEST_CASE("made-up GPU: a setting that nobody knows ends the program") {
  const MadeUpRun run = made_up_run("gpu=2", {"doctor"});
  CHECK(run.status == 99);
  CHECK(run.err.find("MADE_UP_CUDA: cannot read \"gpu=2\"") != std::string::npos);
}

TEST_SUITE_END();
